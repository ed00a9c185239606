"""A command run on a described machine, with its output."""

from collections.abc import Callable
from pathlib import Path

import pytest

from hbatune.act import paths
from hbatune.facts.model import Machine
from tests.unit.machines import attributes, machine

See = Callable[[Machine], None]


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


@pytest.fixture
def see(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> See:
    """Return a function that makes the commands see a described machine."""
    monkeypatch.setattr(paths, "CLAIMS", tmp_path / "writers")
    monkeypatch.setattr(paths, "JOURNAL", tmp_path / "journal.json")

    def show(described: Machine) -> None:
        for module in ("operations.situation", "cli.commands.list"):
            monkeypatch.setattr(f"hbatune.{module}.gather_machine", lambda *a, **k: described)

    show(machine())
    return show
