"""A guest that hangs in a boot is reset, and given up where that does not help."""

import pytest

from tests.lab.machine import BOOTS, Machine, MachineEnded, Silent


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
