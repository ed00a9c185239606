"""The tests of one guest as they run: follows its events and answers what became of a test."""

import base64
import io
import subprocess
import threading
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import msgspec

from tests.lab.events import (
    Any,
    Artifacts,
    Begin,
    Broken,
    Collected,
    Done,
    Panicked,
    Ready,
    Rebooting,
    Result,
    decode,
)
from tests.lab.machine import MachineEnded

SILENCE_SECONDS = 120  # between two tests, and beyond the deadline of one
PANICS = 2
"""So many in one guest are put down to the emulator at most."""


class Source(Protocol):
    """What events come from: a Machine."""

    def start(self) -> None:
        """Switch it on, or raise MachineEnded."""

    def boot(self) -> bytes:
        """Return the first line after a start or a reboot, or raise MachineEnded."""

    def receive(self, deadline: float) -> bytes:
        """Return the next line, or raise MachineEnded."""

    def console_tail(self) -> str:
        """Return the end of the console."""

    def stale_breakpoints(self) -> int:
        """Return how often its kernel panicked by the emulator's fault."""

    def kill(self) -> None:
        """End it."""


class GuestRun:
    """Listens to one guest in a thread of its own until it is done or dead.

    It holds the ``place`` for as long as it is switched on. ``panics`` counts those of its kernel
    that were the emulator's fault: the guest has rebooted, and the running test is repeated.
    """

    def __init__(
        self, source: Source, artifacts: Path, place: AbstractContextManager[object]
    ) -> None:
        self._source, self._place = source, place
        self._artifacts = artifacts
        self._packed = io.BytesIO()
        self._news = threading.Condition()
        self._expected: dict[str, list[str]] | None = None
        self._results: dict[str, Result] = {}
        self._broken: dict[str, str] = {}
        self._running = ""
        self.panics = 0
        self._end: str | None = None
        self._listener = threading.Thread(target=self._listen, daemon=True)

    def start(self) -> None:
        """Switch the guest on and listen, as soon as there is a place for it."""
        self._listener.start()

    def results(self, test: str) -> list[Result]:
        """Wait for ``test`` and return its results, one for each set of its parameters.

        A test that the guest did not report in any way becomes a failure that tells why.
        """
        with self._news:
            self._news.wait_for(lambda: self._end is not None or self._is_complete(test))
            names = (self._expected or {}).get(test, [])
            missing = [name for name in names or [test] if name not in self._results]
            return [self._results[name] for name in names if name in self._results] + [
                _unreported(name, self._why(test)) for name in missing
            ]

    def finish(self, seconds: float) -> None:
        """Wait at most ``seconds`` for the guest's last words, its artifacts, and end it."""
        self._listener.join(seconds)
        self._source.kill()
        self._listener.join()

    def _is_complete(self, test: str) -> bool:
        if self._expected is None:
            return False
        if test not in self._expected:
            return True
        return all(name in self._results for name in self._expected[test])

    def _why(self, test: str) -> str:
        file = test.partition("::")[0]
        return self._broken.get(file) or self._end or "the guest did not find this test"

    def _listen(self) -> None:
        end = "the guest ended without a word about it"
        try:
            with self._place:
                self._follow()
        except MachineEnded as ended:
            during = f" during {self._running}" if self._running else ""
            end = f"the guest is gone{during}: {ended}\n--- console\n{self._source.console_tail()}"
        finally:
            with self._news:
                self._end = end
                self._news.notify_all()

    def _follow(self) -> None:
        """Switch the guest on, note what it says until it is done, and end it."""
        try:
            self._source.start()
            event = self._read(self._source.boot())
            while True:
                with self._news:
                    self._note(event)
                    self._news.notify_all()
                if isinstance(event, Done):
                    self._unpack()
                    break
                event = self._read(self._after(event))
        finally:
            self._source.kill()

    def _after(self, event: Any) -> bytes:
        """Wait for the line that follows an event."""
        if isinstance(event, Rebooting):
            return self._source.boot()
        patience = event.deadline if isinstance(event, Begin) else 0
        return self._source.receive(time.monotonic() + patience + SILENCE_SECONDS)

    @staticmethod
    def _read(line: bytes) -> Any:
        try:
            return decode(line)
        except msgspec.DecodeError as error:
            raise MachineEnded(f"it said {line[:200]!r}, which is no event") from error

    def _note(self, event: Any) -> None:
        match event:
            case Collected(tests=tests):
                expected = self._expected or {}  # after a reboot only those that are left come
                for name in tests:
                    expected_tests = expected.setdefault(name.partition("[")[0], [])
                    if name not in expected_tests:
                        expected_tests.append(name)
                self._expected = expected
            case Begin(test=test):
                self._running = test
            case Result(test=test):
                self._results[test] = event
                self._running = ""
            case Broken(file=file, text=text):
                self._broken[file] = text
            case Panicked():
                self._put_down_to_the_emulator()
            case Artifacts(data=data):
                self._packed.write(base64.b64decode(data))
            case Ready() | Rebooting() | Done():
                pass

    def _put_down_to_the_emulator(self) -> None:
        """Count a panic, or raise MachineEnded where it may be the kernel's or hbatune's."""
        if self._source.stale_breakpoints() <= self.panics or self.panics == PANICS:
            raise MachineEnded("its kernel panicked")
        self.panics += 1

    def _unpack(self) -> None:
        if self._packed.tell():
            subprocess.run(
                ["tar", "--extract", "--gzip", "--no-same-owner", f"--directory={self._artifacts}"],
                input=self._packed.getvalue(),
                check=True,
            )


def _unreported(test: str, why: str) -> Result:
    return Result(test=test, outcome="failed", text=why, sections=[], seconds=0)
