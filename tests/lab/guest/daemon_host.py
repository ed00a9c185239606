"""A host with one LUN, on which the daemon runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab.guest import appear
from tests.lab.guest.command import CONFIGURATION, hbatune
from tests.lab.guest.kit import loaded_scsi_debug, scsi_disks
from tests.lab.guest.service import QUICK, QUIET, Journal, running
from tests.lab.guest.values import cat, everything, scheduler

_LUN = {"max_luns": 1, "num_tgts": 1, "max_queue": 192, "submit_queues": 2, "vpd_use_hostno": 0}
TRACEFS = Path("/sys/kernel/tracing")
INSTANCE = TRACEFS / "instances/hbatune"
LATENCY = Path("/run/hbatune/latency.json")
WITH_OBJECTIVE = f"{QUIET}[watch]\ninterval_seconds = 2\nwindow_seconds = 10\n"


@contextmanager
def installed() -> Iterator[dict[str, str]]:
    """Have hbatune installed on it; yield every value from before, which all come back."""
    with loaded_scsi_debug(**_LUN):
        before = everything()
        with running():
            yield before
        assert everything() == before, "uninstalled, all is as it was"


@contextmanager
def tuned_lun() -> Iterator[str]:
    """Yield the LUN; afterwards it is tuned again, by a daemon that has just been reloaded.

    A reload is enough, and cheaper than an apply, unless the test has rolled back.
    """
    yield scsi_disks("scsi_debug")[0]
    with Journal() as journal:
        if is_tuned():
            journal.reload()
        else:
            # Its end reloads the daemon, too (hbatune/operations/apply.py).
            assert hbatune("apply", "--profile", "oltp", "--no-probe").code == 0
            journal.until_reloaded()
    assert is_tuned()


def is_tuned() -> bool:
    """Return whether the daemon calls the host tuned, with or without findings."""
    return hbatune("status", "--json").json["state"] in ("tuned", "findings")


def by_profile(disk: str) -> bool:
    return (scheduler(disk), cat(disk, "queue/nr_requests")) == ("mq-deadline", "2048")


@contextmanager
def reconfigured(config: str = QUICK) -> Iterator[Journal]:
    """Have the daemon go on with this table and the rules that are there now.

    Yield what it says from then on. The apply at the end of a test restores the old table.
    """
    before = CONFIGURATION.read_text()
    CONFIGURATION.write_text(f'profile = "oltp"\n{config}')
    try:
        with Journal() as journal:
            journal.reload()
            yield journal
    finally:
        CONFIGURATION.write_text(before)


def reload_until_reported(reloaded_map: appear.Reloaded, name: str, journal: Journal) -> None:
    """Load a map's table until the daemon reports the kernel's reset; wait for the repair.

    A pass for another reason may begin just before, and set or report the limit first. The
    report may also be of the reload before the last one, whose repair then comes later.
    """
    message = ""
    while "reset by the kernel" not in message:
        appear.again(reloaded_map)
        message = str(journal.until_set(name, "read_ahead_kb")["MESSAGE"])
    appear.wait_until_right(reloaded_map, name)


def well() -> bool:
    """Whether everything is as the profile says, by a diff and by the daemon's own word."""
    return hbatune("diff").code == 0 and is_tuned()
