"""Notes on what an earlier run left behind. Every command prints them: no silent half-way state."""

from collections.abc import Iterable, Sequence

from hbatune.act.journal import Entry, Journal, LostError, unknown_ids
from hbatune.act.lock import Claim
from hbatune.act.rollback_record import RollbackRecords, UnreadableRecordError
from hbatune.facts.model import Machine
from hbatune.facts.targets import targets
from hbatune.policy.config import Unmatched
from hbatune.settings.table import Value
from hbatune.text.terminal import note


def tell(
    journal: Journal, records: RollbackRecords, machine: Machine, stuck: Sequence[Claim]
) -> None:
    """Print on standard error what an earlier run left on this machine.

    ``records`` are the rollback records. ``stuck`` are the claims of its workers that the kernel
    still holds.
    """
    _report_damaged(records)
    _report_losses(journal)
    _report_interrupted(journal)
    _report_stuck(stuck)
    _report_doubts(journal, machine, stuck)
    _report_unknown_ids(journal, records, machine)


def tell_unmatched(names: Iterable[Unmatched]) -> None:
    """Print the names in [site] that match nothing on this machine."""
    for name in names:
        note(unmatched_line(name))


def unmatched_line(name: Unmatched) -> str:
    """Return that a name in [site] matches nothing on this machine."""
    return f"[site] {name.key}: {name.name!r} is no disk or adapter of this machine"


def tell_not_understood(settings: Iterable[str]) -> None:
    """Print the settings of a snapshot's rules that this version leaves out."""
    if names := ", ".join(settings):
        note(f"the host's rules for {names} are left out: they are of a newer hbatune than this")


def _report_unknown_ids(journal: Journal, records: RollbackRecords, machine: Machine) -> None:
    """Print the targets rolled back by an earlier version that cannot be identified any more."""
    for id in unknown_ids(journal, records, machine):
        note(
            f"{id!r} was rolled back, or a value of it reverted; an earlier version noted it by a "
            "number that has changed since, so that no target of this machine is left alone for "
            "it: `hbatune rollback TARGET` excludes the right one"
        )


def _report_damaged(records: RollbackRecords) -> None:
    """Print that the record of rollbacks cannot be read, if it cannot."""
    if records.damaged:
        error = UnreadableRecordError(records.damaged)
        note(f"{error.message}; {error.hint}")


def _report_losses(journal: Journal) -> None:
    """Print that the journal has lost original values, if it has."""
    if journal.losses:
        error = LostError(journal.losses)
        note(f"{error.message}; {error.hint}")


def _report_interrupted(journal: Journal) -> None:
    """Print that the last run was interrupted, if it was."""
    run = journal.run
    if run is not None and not run.process.alive():
        note(
            f"an earlier `{run.command}` (process {run.process.pid}) was interrupted: settings may "
            "be half-way; `hbatune rollback` restores what was there, `hbatune apply` completes it"
        )


def _report_stuck(stuck: Iterable[Claim]) -> None:
    """Print the disks on which an earlier write is still waiting."""
    for claim in stuck:
        note(
            f"{claim.target}: process {claim.pid} of an earlier run is still waiting in the kernel "
            "to write; its settings are left alone until its I/O ends"
        )


def _report_doubts(journal: Journal, machine: Machine, stuck: Iterable[Claim]) -> None:
    """Print the result of writes that had passed their deadline, once their worker is gone."""
    waiting = {claim.id for claim in stuck}
    # While the worker lives its write can still land, and a read of the disk could hang behind it.
    doubtful = [e for e in journal.entries if e.doubt is not None and e.id not in waiting]
    if not doubtful:
        return
    from hbatune.act.writer import read_now  # rarely needed, and heavy

    directories = {target.id: target.directory for target in targets(machine).values()}
    for entry in doubtful:
        if entry.id in directories:
            # A short deadline: this is only a note, and the disk may still not answer.
            values = read_now({directories[entry.id]: (entry.setting,)}, deadline=1.0)
            _report_doubt(entry, values[directories[entry.id]].get(entry.setting))


def _report_doubt(entry: Entry, current: Value | None) -> None:
    """Print whether one late write has landed."""
    if current == entry.value:
        note(f"{entry.target}: the late write of {entry.setting} has landed: it is {current} now")
    elif current == entry.before:
        note(
            f"{entry.target}: the late write of {entry.setting} never landed: it is {current} still"
        )
    else:
        note(f"{entry.target}: the late write of {entry.setting} is in doubt: it is {current} now")
