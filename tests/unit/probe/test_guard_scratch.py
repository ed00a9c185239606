"""A file to probe: read and written for real, bounded, and gone however it ends."""

import os
import shutil
import signal
import subprocess
import sys
import zlib
from pathlib import Path
from types import SimpleNamespace

import pytest

from hbatune.cli import main
from hbatune.errors import UsageError
from hbatune.probe import run
from hbatune.probe.guard import make_scratch_file
from hbatune.probe.result import Pattern, ProbeResult, Workload

MIB = 1 << 20
real_fio = pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    directory = tmp_path / "here"
    directory.mkdir()
    return directory


def test_scratch_file_is_unnamed(folder: Path) -> None:
    with make_scratch_file(folder, largest=4 * MIB, smallest=MIB) as file:
        assert list(folder.iterdir()) == []
        content = Path(file.path).read_bytes()
        assert len(content) == file.size == 4 * MIB
        assert bytes(4096) not in content
    assert not Path(file.path).exists()


@real_fio
@pytest.mark.parametrize("pattern", [Pattern.RANDOM_READ, Pattern.RANDOM_MIX])
def test_fio_probes_scratch_file(pattern: Pattern, folder: Path) -> None:
    with make_scratch_file(folder, largest=4 * MIB, smallest=MIB) as file:
        workload = Workload(pattern, ramp=0, runtime=0.2, reads=50)
        outcome = run.probe_file(str(folder), file.path, file.size, workload)
    assert isinstance(outcome, ProbeResult), outcome
    assert outcome.figures.ios > 0


def test_unusable_folder_is_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="too little"), make_scratch_file(folder, smallest=1 << 60):
        pytest.fail("there is not that much")
    with pytest.raises(UsageError, match="cannot hold"), make_scratch_file(folder / "none"):
        pytest.fail("there is no folder")


def test_requested_size_spares_tenth(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """40 MiB of 200 MiB are free, and 20 MiB have to stay so."""
    blocks = {"f_frsize": MIB, "f_blocks": 200, "f_bavail": 40}
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(**blocks))
    announced: list[tuple[int, float]] = []

    def announce(size: int, seconds: float) -> None:
        assert not announced, "once"
        announced.append((size, seconds))

    with make_scratch_file(folder, 20 * MIB, announce, smallest=4 * MIB) as file:
        content = Path(file.path).read_bytes()
        assert len(content) == file.size == 20 * MIB
        assert len(zlib.compress(content[-MIB:], 1)) > 0.99 * MIB, "also its end is random"
    [(size, seconds)] = announced
    assert (size, seconds > 0) == (20 * MIB, True)
    with pytest.raises(UsageError, match="too little free space") as refused:
        make_scratch_file(folder, 21 * MIB).__enter__()
    assert refused.value.hint is not None
    assert "--size can be 20m at most" in refused.value.hint
    blocks["f_bavail"] = 19
    with pytest.raises(UsageError, match="too little free space"):
        make_scratch_file(folder, MIB, smallest=MIB).__enter__()
    assert list(folder.iterdir()) == []


def test_smallest_file_is_announced(folder: Path) -> None:
    announced: list[tuple[int, float]] = []
    with make_scratch_file(folder, MIB, lambda *file: announced.append(file), smallest=MIB):
        assert announced == [(MIB, 0.0)]


def test_killed_process_leaves_nothing(folder: Path) -> None:
    code = (
        "import sys, signal; from pathlib import Path\n"
        "from hbatune.probe.guard import make_scratch_file\n"
        f"with make_scratch_file(Path({str(folder)!r}), largest={4 * MIB}, smallest={MIB}):\n"
        "    print('ready', flush=True); signal.pause()"
    )
    running = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert running.stdout is not None
    assert running.stdout.readline() == b"ready\n"
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    running.stdout.close()
    assert list(folder.iterdir()) == []


def test_file_option_excludes_targets(folder: Path) -> None:
    assert main(["probe", "qd1", "sda", "--size", "1g"]) == 2, "a disk has its own size"
    assert main(["probe", "qd1", "--file", str(folder), "--size", "100m"]) == 2, "no step of it"
    assert main(["probe", "qd1", "sda", "--file", str(folder)]) == 2
    assert main(["probe", "qd1", "--file", str(folder / "none")]) == 2
