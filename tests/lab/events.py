"""What the guest's agent tells the host, one JSON object a line (agent/port.py sends them)."""

from typing import Literal

import msgspec

Outcome = Literal["passed", "failed", "skipped", "xfailed"]


class Event(msgspec.Struct, frozen=True, tag_field="event", tag=str.lower):
    """Something that happened in the guest."""


class Ready(Event, frozen=True):
    """The guest is up, udev has settled; ``uptime`` is in seconds of the guest's clock."""

    uptime: float


class Broken(Event, frozen=True):
    """A test file could not be collected in the guest."""

    file: str
    text: str


class Collected(Event, frozen=True):
    """What will run, by pytest's names, parameters included."""

    tests: list[str]


class Begin(Event, frozen=True):
    """A test begins; the guest itself ends it after ``deadline`` seconds if it can."""

    test: str
    deadline: int


class Result(Event, frozen=True):
    """A test has ended. ``text`` is the failure or the reason, ``sections`` its output."""

    test: str
    outcome: Outcome
    text: str
    sections: list[tuple[str, str]]
    seconds: float


class Rebooting(Event, frozen=True):
    """The guest boots anew, and is ready once more after that."""


class Panicked(Event, frozen=True):
    """The guest has rebooted by itself, and repeats the test that was running."""


class Artifacts(Event, frozen=True):
    """A part of the packed folder of results, in base64."""

    data: str


class Done(Event, frozen=True):
    """The job has ended, and the machine may be killed."""

    code: int


Any = Ready | Broken | Collected | Begin | Result | Rebooting | Panicked | Artifacts | Done


def decode(line: bytes) -> Any:
    """Return the event of one line; raises msgspec.ValidationError where it is none."""
    event: Any = _decoder.decode(line)
    return event


_decoder = msgspec.json.Decoder(Any)
