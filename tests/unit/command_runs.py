"""A command run on a described machine, with its output."""

from collections.abc import Callable

import pytest

from hbatune.facts.model import Machine
from tests.unit.machines import attributes

See = Callable[[Machine], None]
_COMMANDS = tuple(f"cli.commands.{name}" for name in ("history", "watch"))
"""The commands that read the machine without an operation."""


def see_machine(monkeypatch: pytest.MonkeyPatch, describe: Callable[[], Machine]) -> None:
    """Make every command and operation see a described machine."""
    for module in ("operations.situation", "operations.probe", *_COMMANDS):
        monkeypatch.setattr(f"hbatune.{module}.gather_machine", lambda *a, **k: describe())


def lun(number: int, requests: str = "256", **overrides: object) -> dict[str, object]:
    return {
        "target": f"sd{chr(97 + number)}",
        "attributes": attributes(
            queue__scheduler="none [mq-deadline]",
            queue__nr_requests=requests,
            device__queue_depth="254",
        ),
        **overrides,
    }
