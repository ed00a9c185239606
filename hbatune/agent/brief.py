"""The status of a healthy daemon, read without importing the types of a full status.

A monitoring agent reads the status often, and most daemons are healthy.
"""

import json
import os
import stat
import time

from hbatune.processes import is_alive, is_stopped, read_clock_id

SCHEMA = "hbatune.status/1"

_MAX_BYTES = 1 << 16
"""Maximum bytes of a status: many times the size of a status with nothing open."""

_YEAR_9999 = 253_402_214_400
_NOTHING: dict[str, object] = {"open": [], "alerts": [], "unwritten": [], "doubts": []}
_NOTHING |= {"error": None, "mistake": None, "rolled_back": False, "ready": True}
_NOTHING |= {"unreadable": 0, "abandoned": 0, "schema": SCHEMA}
_TIMES = {"clock", "started", "saved", "save_due", "pass_due", "pass_started", "pass_ended"}
_COUNTS = ("endpoints", "passes", "written", "overruns")


class Brief:
    """The figures of a healthy daemon. Times are in seconds since the epoch.

    ``last`` is the time and the reason of its last pass, or None before the first pass.
    """

    def __init__(self, fields: dict[str, object]) -> None:
        """Read them from a status file. Raises ValueError if it contains more, or less."""
        process, last, profile = fields["process"], fields["last"], fields["profile"]
        names = {"process", "since", "profile", "last", "times"}
        _require(fields.keys() == _NOTHING.keys() | names | set(_COUNTS))
        _require_current(fields["times"])
        for name, value in _NOTHING.items():
            _require(fields[name] == value and type(fields[name]) is type(value))
        _require(isinstance(profile, str) and profile.isprintable())
        self.profile = str(profile)
        counts = [_parse_count(fields[name]) for name in _COUNTS]
        self.endpoints, self.passes, self.written, _ = counts
        self.since = _parse_moment(fields["since"])
        _require(isinstance(process, dict) and process.keys() == {"pid", "start_time"})
        assert isinstance(process, dict)
        pid = _parse_count(process["pid"])
        self.runs = is_alive(pid, _parse_count(process["start_time"])) and not is_stopped(pid)
        self.last: tuple[float, str] | None = None
        if last is not None:
            _require(isinstance(last, dict) and last.keys() == {"time", "reason", "written"})
            assert isinstance(last, dict)
            _require(isinstance(last["reason"], str) and last["reason"].isprintable())
            self.last = _parse_moment(last["time"]), last["reason"]


def read_brief(path: os.PathLike[str]) -> Brief | None:
    """Return the status of a running, healthy daemon, or None.

    None has several possible causes, which ``status.load_status`` distinguishes.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            _require(stat.S_ISREG(os.fstat(descriptor).st_mode))
            data = os.read(descriptor, _MAX_BYTES)
        finally:
            os.close(descriptor)
        status = Brief(json.loads(data))
    except (OSError, LookupError, TypeError, ValueError, AttributeError, RecursionError):
        return None
    return status if status.runs else None


def _require_current(times: object) -> None:
    """Raise ValueError unless the times show that the daemon works (``status.Times``)."""
    _require(isinstance(times, dict) and times.keys() == _TIMES)
    assert isinstance(times, dict)
    _require(times["clock"] == read_clock_id())
    current_time = time.monotonic()
    _require(0 <= times["saved"] <= current_time <= min(times["save_due"], times["pass_due"]))


def _require(condition: bool) -> None:
    if not condition:
        raise ValueError


def _parse_count(value: object) -> int:
    _require(type(value) is int and 0 <= value < 1 << 63)
    assert isinstance(value, int)
    return value


def _parse_moment(value: object) -> float:
    _require(type(value) in (int, float))
    assert isinstance(value, int | float)
    _require(0 <= value <= _YEAR_9999)
    return value
