"""Limits of cgroups on the I/O of a disk, in files as the kernel prints them."""

from pathlib import Path

import pytest

from hbatune.facts import cgroups
from hbatune.facts.cgroups import find_limited_cgroup, read_io_limits


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cgroups, "_CGROUPS", str(tmp_path))
    return tmp_path


def write(root: Path, cgroup: str, **texts: str) -> None:
    folder = root / cgroup
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name.replace("__", ".")).write_text(text)


def count(root: Path, reads: int) -> None:
    text = f"8:0 rbytes=9 wbytes=9 rios=9 wios=9\n(unknown)\n8:16 rbytes=0 wbytes=0 rios={reads}\n"
    write(root, "system.slice/a.service", io__stat=text)


def test_limits_of_one_disk_are_read(root: Path) -> None:
    limit = "8:0 rbps=1 wbps=max riops=max wiops=max\n8:16 rbps=max wbps=max riops=100 wiops=max\n"
    write(root, "system.slice/a.service", io__max=limit, io__latency="8:16 target=5000\n")
    write(root, "system.slice/b.service", io__max="", io__latency="8:0 target=5000\n")
    write(root, ".", io__cost__qos="8:0 enable=1 ctrl=auto\n8:16 enable=0 ctrl=auto rpct=0.00\n")
    count(root, 7)
    found = [(limit.cgroup, limit.file, limit.values) for limit in read_io_limits("8:16")]
    assert found == [
        ("/system.slice/a.service", "io.latency", {"target": 5000}),
        ("/system.slice/a.service", "io.max", {"riops": 100}),
    ]
    names = {(limit.cgroup, limit.file) for limit in read_io_limits("8:0")}
    assert ("/", "io.cost.qos") in names
    assert read_io_limits("8:32") == ()


@pytest.mark.parametrize(("reads", "cgroup"), [(190, "/system.slice/a.service"), (150, None)])
def test_used_limit_is_found(root: Path, reads: int, cgroup: str | None) -> None:
    """100 reads a second are allowed, for two seconds."""
    limit = "8:16 rbps=max wbps=max riops=100 wiops=max\n"
    write(root, "system.slice/a.service", io__max=limit)
    count(root, 1000)
    earlier = read_io_limits("8:16")
    count(root, 1000 + reads)
    assert find_limited_cgroup(earlier, read_io_limits("8:16"), 2.0) == cgroup
    assert find_limited_cgroup((), read_io_limits("8:16"), 2.0) is None, "it is a new one"
