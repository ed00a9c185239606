"""Notes on incomplete work of an earlier run. Every command prints them, so none stays hidden."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from hbatune.act.journal import Journal, LostError
from hbatune.act.lock import Claim
from hbatune.act.rollback_record import UnreadableRecordError
from hbatune.errors import HbatuneError
from hbatune.facts.model import Machine
from hbatune.facts.targets import list_targets
from hbatune.policy.config import UnmatchedName
from hbatune.settings.table import NR_REQUESTS, SCHEDULER
from hbatune.shipped import fill_message, load_texts
from hbatune.text.terminal import print_note

if TYPE_CHECKING:
    # Heavy, and the daemon needs only names.
    from hbatune.operations.situation import Situation, Traces


def print_situation(situation: "Situation") -> None:
    """Print the incomplete work of an earlier run, and names and settings that are ignored."""
    print_leftovers(situation.traces)
    print_not_understood(situation.not_understood)
    if situation.profile.is_stored:
        print_note(fill_message("rule_changes", "stored"))


def print_leftovers(traces: "Traces") -> None:
    """Print the incomplete work of an earlier run, and names that are ignored."""
    journal, stuck = traces.journal, traces.stuck
    if traces.rollbacks.damaged:
        _print_error(UnreadableRecordError(traces.rollbacks.damaged))
    if journal.losses:
        _print_error(LostError(journal.losses))
    run = journal.run
    texts = load_texts("notes.toml")["messages"]
    if run is not None and not run.process.alive():
        print_note(texts["interrupted"].format(run=run))
    locking = {e.id for e in journal.entries if e.doubt and e.setting in (SCHEDULER, NR_REQUESTS)}
    for claim in stuck:
        waits = texts["adapter-waits"] if claim.locks and claim.id in locking else ""
        print_note(texts["stuck"].format(claim=claim, waits=waits))
    _report_doubts(journal, traces.machine, stuck)
    print_unmatched(traces.unmatched)


def _print_error(error: HbatuneError) -> None:
    print_note(f"{error.message}; {error.hint}")


def print_unmatched(names: Iterable[UnmatchedName]) -> None:
    """Print the names in [site] that match no device of this machine."""
    for name in names:
        print_note(describe_unmatched(name))


def describe_unmatched(name: UnmatchedName) -> str:
    """Return a message: a name in [site] matches no device of this machine."""
    return f"[site] {name.key}: {name.name!r} does not match a disk or adapter of this machine"


def print_not_understood(settings: Iterable[str]) -> None:
    """Print the settings of a snapshot's rules that this version ignores."""
    if names := ", ".join(settings):
        print_note(load_texts("notes.toml")["messages"]["newer"].format(names=names))


def _report_doubts(journal: Journal, machine: Machine, stuck: Iterable[Claim]) -> None:
    """Print the result of writes that passed their deadline, after their worker has exited."""
    waiting = {claim.id for claim in stuck}
    # While the worker lives, its write can still take effect, and a read could block.
    doubtful = [e for e in journal.entries if e.doubt is not None and e.id not in waiting]
    if not doubtful:
        return
    from hbatune.act.writer import parse_values, read_raw  # rarely needed, and heavy

    directories = {target.id: target.directory for target in list_targets(machine).values()}
    for entry in doubtful:
        if (directory := directories.get(entry.id)) is not None:
            # A short deadline: this is only a note, and the disk may still be unresponsive.
            raw = read_raw({directory: (entry.setting,)}, deadline=1.0)
            current = parse_values(raw[directory]).get(entry.setting)
            late = f"{entry.target}: the late write of {entry.setting}"
            if current == entry.value:
                print_note(f"{late} has landed: it is {current} now")
            elif current == entry.before:
                print_note(f"{late} never landed: it is {current} still")
            else:
                print_note(f"{late} is in doubt: it is {current} now")
