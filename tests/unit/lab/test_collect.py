"""What the host says of a test in a guest."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.lab import collect
from tests.lab.events import Result
from tests.lab.image import Image
from tests.lab.topology import Topology
from tests.pages import CHECKOUT


def test_failure_names_kernel(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new backport that breaks a test is named, since its series alone does not tell it."""
    (tmp_path / "release-9.9").write_text("9.9.1+deb13-amd64")
    failed = Result(test="one", outcome="failed", text="it broke", sections=[], seconds=0)
    monkeypatch.setattr(collect, "image", lambda series: Image(tmp_path))
    monkeypatch.setattr(
        collect, "_lab", lambda session: SimpleNamespace(results=lambda *_: [failed])
    )
    file = collect.GuestFile.from_parent(request.session, path=tmp_path / "test_a.py")
    item = collect.GuestItem.from_parent(file, name="test_one[9.9]", topology=Topology.MIXED)
    with pytest.raises(collect.GuestFailure, match=r"9\.9\.1\+deb13-amd64: .*it broke"):
        item.runtest()


@pytest.mark.parametrize(("share", "order"), [(0, "aabcd"), (0.34, "bcdaa"), (0.99, "daabc")])
def test_rotated_files_stay_whole(share: float, order: str) -> None:
    tests = ["a.py::test_1", "a.py::test_2", "b.py::test", "c.py::test", "d.py::test"]
    rotated = collect.rotate_files(tests, share)
    assert "".join(test[0] for test in rotated) == order
    assert rotated.index("a.py::test_1") < rotated.index("a.py::test_2")


def test_guests_start_before_package_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "kernels", lambda: ("6.1", "6.12", "7.3"))
    items: list[Any] = [
        SimpleNamespace(guest=(Topology.MIXED, "7.3"), guest_name="test_package.py::test_a"),
        SimpleNamespace(guest=(Topology.MIXED, "6.1"), guest_name="test_oltp.py::test_a"),
        SimpleNamespace(guest=(Topology.POWER, "6.1"), guest_name="test_ipr.py::test_a"),
        SimpleNamespace(guest=(Topology.MIXED, "6.12"), guest_name="test_oltp.py::test_a"),
    ]
    mixed = [(Topology.MIXED, series) for series in ("6.12", "6.1", "7.3")]
    assert list(collect.select_tests(items)) == [*mixed, (Topology.POWER, "6.1")]


def test_contributing_lists_tests_of_all_kernels() -> None:
    text = (CHECKOUT / "CONTRIBUTING.md").read_text().partition("the file runs on all three:")[2]
    listed = re.findall(r"`(test_\w+\.py)`", text.partition("There the kernels differ.")[0])
    files = (CHECKOUT / "tests/lab/guest").glob("test_*.py")
    on_all = {path.name for path in files if "\nKERNELS = " not in path.read_text()}
    assert sorted(listed) == sorted(on_all)
