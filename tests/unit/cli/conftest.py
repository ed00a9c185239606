"""Fixtures of the room cli: commands that run on a described machine."""

from pathlib import Path

import pytest

from hbatune.facts.model import Machine
from tests.unit.command_runs import See, see_machine
from tests.unit.machines import machine


@pytest.fixture
def see(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> See:
    """Return a function that makes the commands see a described machine."""

    def show(described: Machine) -> None:
        see_machine(monkeypatch, lambda: described)

    show(machine())
    return show
