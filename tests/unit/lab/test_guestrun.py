"""Whatever becomes of a guest, each of its tests ends as passed, failed or skipped on the host."""

import base64
import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from threading import Event, Semaphore

import pytest

from tests.lab.guestrun import GuestRun
from tests.lab.machine import MachineEnded
from tests.lab.newest import load_last_good, series_of

Said = Mapping[str, object]
LAST_GOOD = series_of(load_last_good())
FILE = "tests/lab/guest/test_a.py"
ONE, TWO = f"{FILE}::test_one", f"{FILE}::test_two"


class Recording:
    """A guest that says these lines and is gone."""

    def __init__(self, events: Iterable[Said], stale_breakpoints: int = 0) -> None:
        self._stale_breakpoints = stale_breakpoints
        self._lines = [json.dumps(event).encode() for event in events]
        self.killed = self.started = False
        self.boots = 0

    def start(self) -> None:
        self.started = True

    def boot(self) -> bytes:
        self.boots += 1
        return self.receive(0)

    def receive(self, deadline: float) -> bytes:
        if not self._lines:
            raise MachineEnded("its kernel panicked")
        return self._lines.pop(0)

    def console_tail(self) -> str:
        return "Kernel panic - not syncing"

    def stale_breakpoints(self) -> int:
        return self._stale_breakpoints

    def kill(self) -> None:
        self.killed = True


def _ended(source: Recording, folder: Path) -> GuestRun:
    run = GuestRun(source, folder, Semaphore())
    run.start()
    run.finish(10)
    return run


def test_guest_waits_for_free_place(tmp_path: Path) -> None:
    first_source, second_source = Recording([READY, DONE]), Recording([READY, DONE])
    place, switched_on, may_end = Semaphore(1), Event(), Event()
    kills: list[bool] = []

    def start() -> None:
        switched_on.set()
        assert may_end.wait(10)

    first_source.start = start  # type: ignore[method-assign]
    second_source.start = lambda: kills.append(first_source.killed)  # type: ignore[method-assign]
    first, second = (GuestRun(source, tmp_path, place) for source in (first_source, second_source))
    first.start()
    assert switched_on.wait(10)
    second.start()
    assert kills == []
    may_end.set()
    for run in (first, second):
        run.finish(10)
    assert kills == [True]


def _result(test: str, outcome: str, text: str = "") -> Said:
    return {
        "event": "result",
        "test": test,
        "outcome": outcome,
        "text": text,
        "sections": [],
        "seconds": 1.5,
    }


READY: Said = {"event": "ready", "uptime": 10.0}
DONE: Said = {"event": "done", "code": 1}


def test_results_match_unparametrized_name(tmp_path: Path) -> None:
    names = [f"{ONE}[a]", f"{ONE}[b]", TWO]
    results = [
        _result(names[0], "passed"),
        _result(names[1], "failed", "no"),
        _result(TWO, "passed"),
    ]
    source = Recording([READY, {"event": "collected", "tests": names}, *results, DONE])
    run = _ended(source, tmp_path)
    assert [result.outcome for result in run.results(ONE)] == ["passed", "failed"]
    assert [result.outcome for result in run.results(TWO)] == ["passed"]
    assert source.killed


def test_tests_resume_after_reboot(tmp_path: Path) -> None:
    collected: Said = {"event": "collected", "tests": [ONE]}
    begin: Said = {"event": "begin", "test": ONE, "deadline": 180}
    again = [READY, collected, begin, _result(ONE, "passed"), DONE]
    source = Recording([READY, collected, begin, {"event": "rebooting"}, *again])
    run = _ended(source, tmp_path)
    assert [result.outcome for result in run.results(ONE)] == ["passed"]
    assert source.boots == 2


def test_panic_fails_unfinished_tests(tmp_path: Path) -> None:
    begin = {"event": "begin", "test": TWO, "deadline": 180}
    collected: Said = {"event": "collected", "tests": [ONE, TWO]}
    run = _ended(Recording([READY, collected, _result(ONE, "passed"), begin]), tmp_path)
    assert [result.outcome for result in run.results(ONE)] == ["passed"]
    (lost,) = run.results(TWO)
    assert lost.outcome == "failed"
    assert TWO in lost.text
    assert "panicked" in lost.text
    assert "Kernel panic" in lost.text


@pytest.mark.parametrize(("by_the_emulator", "outcome"), [(True, "passed"), (False, "failed")])
def test_only_emulator_panic_is_retried(
    tmp_path: Path, by_the_emulator: bool, outcome: str
) -> None:
    collected: Said = {"event": "collected", "tests": [ONE]}
    begin: Said = {"event": "begin", "test": ONE, "deadline": 180}
    again = [{"event": "panicked"}, READY, collected, begin, _result(ONE, "passed"), DONE]
    run = _ended(Recording([READY, collected, begin, *again], int(by_the_emulator)), tmp_path)
    assert [result.outcome for result in run.results(ONE)] == [outcome]
    assert run.panics == int(by_the_emulator)


def test_repeated_panic_fails_test(tmp_path: Path) -> None:
    collected: Said = {"event": "collected", "tests": [ONE]}
    begin: Said = {"event": "begin", "test": ONE, "deadline": 180}
    once = [{"event": "panicked"}, READY, collected, begin]
    run = _ended(Recording([READY, collected, begin, *once * 5], 5), tmp_path)
    assert [result.outcome for result in run.results(ONE)] == ["failed"]


def test_silent_guest_fails_all_tests(tmp_path: Path) -> None:
    run = _ended(Recording([]), tmp_path)
    assert [result.outcome for result in run.results(ONE)] == ["failed"]


def test_forgotten_test_fails(tmp_path: Path) -> None:
    run = _ended(Recording([READY, {"event": "collected", "tests": [ONE]}, DONE]), tmp_path)
    assert [result.outcome for result in run.results(ONE)] == ["failed"]
    assert [result.outcome for result in run.results(TWO)] == ["failed"]


def test_import_error_fails_with_reason(tmp_path: Path) -> None:
    broken: Said = {"event": "broken", "file": FILE, "text": "ImportError: fnord"}
    run = _ended(Recording([READY, broken, {"event": "collected", "tests": []}, DONE]), tmp_path)
    (result,) = run.results(ONE)
    assert result.outcome == "failed"
    assert "fnord" in result.text


def test_invalid_event_fails_run(tmp_path: Path) -> None:
    run = _ended(Recording([READY, {"event": "nonsense"}]), tmp_path)
    (result,) = run.results(ONE)
    assert result.outcome == "failed"
    assert "nonsense" in result.text


def test_artifacts_are_unpacked(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        tar.addfile(tarfile.TarInfo("figures.json"))
    archive = packed.getvalue()
    parts: list[Said] = [
        {"event": "artifacts", "data": base64.b64encode(part).decode()}
        for part in (archive[:10], archive[10:])
    ]
    _ended(Recording([READY, {"event": "collected", "tests": []}, *parts, DONE]), tmp_path)
    assert (tmp_path / "figures.json").exists()


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        (LAST_GOOD, [f"test_a.py::test_one[{LAST_GOOD}]", f"test_b.py::test_two[{LAST_GOOD}]"]),
        ("newest", [f"test_a.py::test_one[{LAST_GOOD}]", f"test_b.py::test_two[{LAST_GOOD}]"]),
        ("6.1", ["test_a.py::test_one[6.1]", "test_b.py::test_two[6.1]"]),
        (
            "",
            [
                *(f"test_a.py::test_one[{series}]" for series in ("6.1", "6.12", LAST_GOOD)),
                *(f"test_b.py::test_two[{series}]" for series in ("6.12", LAST_GOOD)),
            ],
        ),
    ],
)
def test_guest_files_stay_unimported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str, expected: list[str]
) -> None:
    guest = tmp_path / "guest"
    guest.mkdir()
    (guest / "test_a.py").write_text("raise SystemExit\n\ndef test_one(): ...\n")
    (guest / "test_b.py").write_text("KERNELS = ('6.12', 'newest')\n\ndef test_two(): ...\n")
    (tmp_path / "conftest.py").write_text("from tests.lab.conftest import *\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = lab\n")
    monkeypatch.setenv("HBATUNE_LAB_KERNELS", named)
    monkeypatch.setenv("HBATUNE_LAB_CACHE", str(tmp_path))
    checkout = Path(__file__).resolve().parents[3]
    monkeypatch.setenv("PYTHONPATH", str(checkout))
    output = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "--quiet", "--strict-markers"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert [line for line in output.splitlines() if "::" in line] == [
        f"guest/{path}" for path in expected
    ]
