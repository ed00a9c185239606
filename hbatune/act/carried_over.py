"""A journal as this machine calls its targets: ids of before, and of an earlier boot, carried over.

Ids were made of host numbers and NVMe instances once, which change between boots.
"""

from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from hbatune.act import hands_off, journal
from hbatune.act.hands_off import HandsOff
from hbatune.act.journal import Entry, Journal
from hbatune.facts.ids import Renaming, unmapped
from hbatune.facts.model import Machine
from hbatune.facts.targets import targets


def load(path: Path, machine: Machine) -> tuple[Journal, Journal | None]:
    """Return this boot's journal with the ids of now, and an earlier boot's where that is there.

    JournalError as ``journal.load`` raises.
    """
    filed, earlier = journal.load(path, machine.boot_id)
    return carry_over(filed, Renaming(machine)), earlier


def carry_over(filed: Journal, renaming: Renaming) -> Journal:
    """Return this boot's journal with every id as it is now; what means nothing stays as it is.

    Entries are of this boot; what was excluded or reverted may be of an earlier one.
    """
    entries: dict[tuple[str, str], Entry] = {}
    for entry in filed.entries:
        now = replace(entry, id=renaming.of_this_boot(entry.id, entry.diskseq))
        entries.setdefault(now.key, now)
    excluded = (each for id in filed.excluded for each in renaming.that_lasts(id))
    reverted = (
        replace(each, id=id) for each in filed.reverted for id in renaming.that_lasts(each.id)
    )
    return replace(
        filed,
        entries=tuple(entries.values()),
        excluded=tuple(dict.fromkeys(excluded)),
        reverted=tuple(dict.fromkeys(reverted)),
    )


def rolled_back(filed: Journal, machine: Machine) -> HandsOff:
    """Return the record of rollbacks with the ids of now.

    What an earlier version kept in the journal for it is in it, too.
    """
    record = hands_off.load()
    if not (record.ids or record.lifted or filed.excluded):
        return record
    renaming = Renaming(machine)

    def now(ids: Iterable[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each for id in ids for each in renaming.that_lasts(id)))

    return replace(record, ids=now((*record.ids, *filed.excluded)), lifted=now(record.lifted))


def left_behind(filed: Journal, machine: Machine) -> tuple[str, ...]:
    """Return what is kept from being tuned by an id of before that means nothing here."""
    ids = (*rolled_back(filed, machine).ids, *(each.id for each in filed.reverted))
    return unmapped(ids, targets(machine)) if ids else ()
