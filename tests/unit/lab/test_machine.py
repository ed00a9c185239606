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
def test_hanging_boot_is_reset(times: int) -> None:
    machine = Hanging(times)
    assert machine.boot() == b"ready"
    assert machine.resets == times


def test_endless_hang_ends_boot() -> None:
    machine = Hanging(BOOTS)
    with pytest.raises(MachineEnded):
        machine.boot()
    assert machine.resets == BOOTS - 1


def test_ended_machine_is_not_reset() -> None:
    class Gone(Hanging):
        def receive(self, deadline: float) -> bytes:
            raise MachineEnded("its kernel panicked")

    machine = Gone(0)
    with pytest.raises(MachineEnded, match="panicked"):
        machine.boot()
    assert machine.resets == 0


def test_signal_exit_is_no_panic() -> None:
    assert "SIGTERM" in ended_by(-signal.SIGTERM)
    assert "panicked" not in ended_by(-signal.SIGTERM)
    assert "panicked" not in ended_by(1)
    assert "panicked" in ended_by(0)


def test_ctrl_c_reports_interrupt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(lab, "require_lab", interrupted)
    assert lab.main(["image"]) == 128 + signal.SIGINT
    said = capsys.readouterr().err
    assert "interrupted" in said
    assert "panicked" not in said


def test_killed_machine_stays_off() -> None:
    machine = Machine(Image(Path("image")), "6.12", job=NOWHERE, disk=NOWHERE, console=NOWHERE)
    machine.kill()
    with pytest.raises(MachineEnded, match="not needed"):
        machine.start()
