"""What an earlier run left behind, said by every command: nothing stays half-done in silence."""

from collections.abc import Iterable, Sequence

from hbatune.act.apply import read_now
from hbatune.act.claims import Claim
from hbatune.act.journal import Entry, Journal
from hbatune.cli.output import note
from hbatune.facts.model import Machine
from hbatune.facts.targets import targets
from hbatune.settings.table import Value


def tell(journal: Journal, machine: Machine, stuck: Sequence[Claim]) -> None:
    """Say on standard error what an earlier run left on this machine.

    ``stuck`` are its writers that the kernel still holds.
    """
    _tell_interrupted(journal)
    _tell_stuck(stuck)
    _tell_doubts(journal, machine, stuck)


def _tell_interrupted(journal: Journal) -> None:
    """Say that the last run did not come to its end, if it did not."""
    run = journal.run
    if run is not None and not run.process.alive():
        note(
            f"an earlier `{run.command}` (process {run.process.pid}) was interrupted: settings may "
            "be half-way; `hbatune rollback` restores what was there, `hbatune apply` completes it"
        )


def _tell_stuck(stuck: Iterable[Claim]) -> None:
    """Name the disks that an earlier write is still waiting on."""
    for claim in stuck:
        note(
            f"{claim.target}: process {claim.pid} of an earlier run is still waiting in the kernel "
            "to write; its settings are left alone until its I/O ends"
        )


def _tell_doubts(journal: Journal, machine: Machine, stuck: Iterable[Claim]) -> None:
    """Say what became of writes that had passed their deadline, once their writer is gone."""
    waiting = {claim.id for claim in stuck}
    doubtful = [e for e in journal.entries if e.doubt is not None and e.id not in waiting]
    directories = {target.id: target.directory for target in targets(machine).values()}
    for entry in doubtful:
        if entry.id in directories:
            found = read_now({directories[entry.id]: (entry.setting,)}, deadline=1.0)
            _tell_doubt(entry, found[directories[entry.id]].get(entry.setting))


def _tell_doubt(entry: Entry, now: Value | None) -> None:
    """Say whether one late write has landed."""
    if now == entry.value:
        note(f"{entry.target}: the late write of {entry.setting} has landed: it is {now} now")
    elif now == entry.before:
        note(f"{entry.target}: the late write of {entry.setting} never landed: it is {now} still")
    else:
        note(f"{entry.target}: the late write of {entry.setting} is in doubt: it is {now} now")
