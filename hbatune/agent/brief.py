"""The status of a daemon that is well, read without the types of all that others have to tell.

A monitoring agent asks often, and most daemons are well: what only the others need is not imported.
"""

import json
import os
import stat
import time

from hbatune.processes import clock_id, is_stopped, lives

TYPE_CHECKING = False  # as in cli.streams
if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = "hbatune.status/1"

_MOST = 1 << 16
"""Bytes of a status with nothing open, and many times more."""

_YEAR_9999 = 253_402_214_400
_NOTHING: dict[str, object] = {
    **{"open": [], "alerts": [], "error": None, "mistake": None, "unreadable": 0},
    **{"rolled_back": False, "ready": True, "unwritten": [], "abandoned": 0, "schema": SCHEMA},
}
_TIMES = {
    *("clock", "started", "saved", "save_due"),
    *("pass_due", "pass_started", "pass_ended"),
}
_COUNTS = ("endpoints", "passes", "written", "overruns")


class Brief:
    """The figures of a daemon that is well; times are in seconds since the epoch.

    ``last`` is the time and the reason of its last pass, None before the first.
    """

    def __init__(self, found: dict[str, object]) -> None:
        """Take them from a status file. Raises ValueError where there is more to tell, or less."""
        process, last, profile = found["process"], found["last"], found["profile"]
        _require(
            found.keys()
            == _NOTHING.keys() | {*_COUNTS, "process", "since", "profile", "last", "times"}
        )
        _require_current(found["times"])
        for name, value in _NOTHING.items():
            _require(found[name] == value and type(found[name]) is type(value))
        _require(isinstance(profile, str) and profile.isprintable())
        self.profile = str(profile)
        self.endpoints, self.passes, self.written, _ = (_count(found[name]) for name in _COUNTS)
        self.since = _moment(found["since"])
        _require(isinstance(process, dict) and process.keys() == {"pid", "start_time"})
        assert isinstance(process, dict)
        pid = _count(process["pid"])
        self.runs = lives(pid, _count(process["start_time"])) and not is_stopped(pid)
        self.last: tuple[float, str] | None = None
        if last is not None:
            _require(isinstance(last, dict) and last.keys() == {"time", "reason", "written"})
            assert isinstance(last, dict)
            _require(isinstance(last["reason"], str) and last["reason"].isprintable())
            self.last = _moment(last["time"]), last["reason"]


def brief(path: "Path") -> Brief | None:
    """Return the status of a running daemon that is well and has nothing more to tell, or None.

    None says nothing of the daemon: ``status.load`` tells.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            _require(stat.S_ISREG(os.fstat(descriptor).st_mode))
            data = os.read(descriptor, _MOST)
        finally:
            os.close(descriptor)
        found = Brief(json.loads(data))
    except (OSError, LookupError, TypeError, ValueError, AttributeError, RecursionError):
        return None
    return found if found.runs else None


def _require_current(times: object) -> None:
    """Raise ValueError unless the times show that the daemon works (``status.Times``)."""
    _require(isinstance(times, dict) and times.keys() == _TIMES)
    assert isinstance(times, dict)
    _require(times["clock"] == clock_id())
    now = time.monotonic()
    _require(0 <= times["saved"] <= now <= min(times["save_due"], times["pass_due"]))


def _require(true: bool) -> None:
    if not true:
        raise ValueError


def _count(value: object) -> int:
    _require(type(value) is int and 0 <= value < 1 << 63)
    assert isinstance(value, int)
    return value


def _moment(value: object) -> float:
    _require(type(value) in (int, float))
    assert isinstance(value, int | float)
    _require(0 <= value <= _YEAR_9999)
    return value
