"""A guest that hangs in a boot is reset, and given up where that does not help."""

import signal
from pathlib import Path

import pytest

from tests.lab import __main__ as lab
from tests.lab.image import Image
from tests.lab.machine import BOOTS, Machine, MachineEnded, Silent, ended_by

NOWHERE = Path("/nowhere")


class Hanging(Machine):
    """Hangs in its first boots."""

    def __init__(self, times: int) -> None:
        self._times = times
        self.resets = 0

    def receive(self, deadline: float) -> bytes:
        if self.resets < self._times:
            raise Silent("nothing was heard of it in time")
        return b"ready"

    def reset(self) -> None:
        self.resets += 1


@pytest.mark.parametrize("times", range(BOOTS))
def test_a_boot_that_hangs_is_begun_anew(times: int) -> None:
    machine = Hanging(times)
    assert machine.boot() == b"ready"
    assert machine.resets == times


def test_a_guest_that_always_hangs_is_given_up() -> None:
    machine = Hanging(BOOTS)
    with pytest.raises(MachineEnded):
        machine.boot()
    assert machine.resets == BOOTS - 1


def test_a_guest_that_is_gone_is_not_waited_for() -> None:
    class Gone(Hanging):
        def receive(self, deadline: float) -> bytes:
            raise MachineEnded("its kernel panicked")

    machine = Gone(0)
    with pytest.raises(MachineEnded, match="panicked"):
        machine.boot()
    assert machine.resets == 0


def test_a_machine_that_a_signal_ended_is_not_said_to_have_panicked() -> None:
    assert "SIGTERM" in ended_by(-signal.SIGTERM)
    assert "panicked" not in ended_by(-signal.SIGTERM)
    assert "panicked" not in ended_by(1)
    assert "panicked" in ended_by(0)


def test_ctrl_c_is_said_to_be_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(lab, "require_lab", interrupted)
    assert lab.main(["image"]) == 128 + signal.SIGINT
    said = capsys.readouterr().err
    assert "interrupted" in said
    assert "panicked" not in said


def test_a_machine_that_was_killed_before_its_turn_is_not_switched_on() -> None:
    machine = Machine(Image(Path("image")), "6.12", job=NOWHERE, disk=NOWHERE, console=NOWHERE)
    machine.kill()
    with pytest.raises(MachineEnded, match="not needed"):
        machine.start()
