"""The JSON document of `hbatune status`, and the verdicts that it shows."""

from msgspec import Struct

from hbatune.act import paths
from hbatune.agent.brief import SCHEMA
from hbatune.agent.status import Ages, DaemonState, Stall, Status
from hbatune.errors import UsageError
from hbatune.probe import history
from hbatune.probe.history import Record
from hbatune.text.terminal import note

_LATEST = 5
"""Verdicts that are shown."""


class StatusDocument(Struct, frozen=True, kw_only=True):
    """The JSON document of `status`; ``verdicts`` are the latest, the newest last.

    ``stalls`` are the reasons for the ``state`` stalled.
    """

    schema: str = SCHEMA
    running: bool
    well: bool
    state: DaemonState
    stalls: tuple[Stall, ...] = ()
    ages: Ages | None = None
    status: Status | None
    verdicts: tuple[Record, ...]


def latest_verdicts() -> tuple[Record, ...]:
    """Return the latest verdicts, none and a note where this user may not read them."""
    try:
        records = history.load(paths.HISTORY).records
    except UsageError as error:
        note(f"{error.message}: verdicts are not shown")
        return ()
    return tuple(record for record in records if record.proof is not None)[-_LATEST:]
