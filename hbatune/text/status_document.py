"""The JSON document of `hbatune status`, and its verdicts."""

from msgspec import Struct

from hbatune.act import paths
from hbatune.agent.brief import SCHEMA
from hbatune.agent.status import Ages, DaemonState, Stall, Status
from hbatune.errors import UsageError
from hbatune.facts.udev import UnsetSetting
from hbatune.probe import history
from hbatune.text.terminal import print_note

_LATEST = 5
"""The number of shown verdicts."""


class StatusDocument(Struct, frozen=True, kw_only=True):
    """The JSON document of `status`; ``verdicts`` are the most recent ones, in order of time.

    ``stalls`` are the reasons for the ``state`` stalled. ``unset`` are the settings that udev's
    rules could not set as a disk appeared, and that the daemon has not set since.
    """

    schema: str = SCHEMA
    running: bool
    well: bool
    state: DaemonState
    stalls: tuple[Stall, ...] = ()
    ages: Ages | None = None
    status: Status | None
    verdicts: tuple[history.Record, ...]
    unset: tuple[UnsetSetting, ...] = ()


def read_latest_verdicts() -> tuple[history.Record, ...]:
    """Return the latest verdicts; if this user may not read them, print a note and return none."""
    try:
        records = history.load(paths.HISTORY).records
    except UsageError as error:
        print_note(f"{error.message}: verdicts are not shown")
        return ()
    return tuple(record for record in records if record.proof is not None)[-_LATEST:]
