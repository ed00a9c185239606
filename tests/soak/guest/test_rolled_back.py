"""An hour of the daemon after a rollback: nothing is "repaired" back."""

import pytest

from tests.lab.guest.command import hbatune
from tests.lab.guest.kit import loaded_scsi_debug, scsi_disks
from tests.lab.guest.service import QUICK, UNIT, announce, let_be, running, systemctl
from tests.lab.guest.values import everything
from tests.soak.guest.results import save_results

KERNELS = ("6.1", "6.12")
pytestmark = pytest.mark.usefixtures("virtual_disks_wanted")
MINUTES, EACH = 60, 60
LUN = {"max_luns": 1, "num_tgts": 1, "max_queue": 192, "submit_queues": 2}


@pytest.mark.deadline(7200)
def test_rollback_holds_one_hour() -> None:
    differed: dict[int, dict[str, str]] = {}
    with loaded_scsi_debug(**LUN):
        [lun] = scsi_disks("scsi_debug")
        original = everything()
        with running(QUICK):
            tuned = everything()
            assert hbatune("rollback").code == 0
            for minute in range(MINUTES):
                systemctl("restart" if minute % 10 == 9 else "reload", UNIT)
                announce(lun)
                let_be(EACH)
                current_values = everything()
                if current_values != original:
                    differed[minute] = {
                        name: current_values[name]
                        for name in current_values.keys() & original.keys()
                    }
            healthy = hbatune("status", "--json").json["state"] == "rolled_back"
    save_results(
        "values after a rollback, each minute: a reload or restart and an event before it",
        name="rolled_back",
        minutes=MINUTES,
        values=len(original),
        tuned=sum(tuned[name] != original[name] for name in original),
        differed=differed,
    )
    assert tuned != original
    assert differed == {}
    assert healthy
