"""Prints the notes and the progress of operations on standard error."""

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from hbatune.act.system import Ran
from hbatune.cli.text.leftovers import tell, tell_unmatched
from hbatune.cli.text.output import note, say
from hbatune.cli.text.output_options import is_quiet
from hbatune.cli.text.progress import progress
from hbatune.cli.text.quantity import quantity
from hbatune.cli.text.restored import show_restored
from hbatune.cli.text.units import duration
from hbatune.errors import HbatuneError
from hbatune.facts.irqbalance import Irqbalance
from hbatune.facts.model import Missing
from hbatune.operations import notes
from hbatune.operations.context import Advance, Phase
from hbatune.operations.notes import Note, Task, TaskFailed


class TextReporter:
    """A reporter that prints, for a terminal or a log."""

    def note(self, note: Note) -> None:
        """Print a note."""
        show_note(note)

    def progress(self, phase: Phase, total: int) -> AbstractContextManager[Advance]:
        """Show a bar on a terminal."""
        return progress(phase, total)


def show_note(found: Note) -> None:
    """Print a note: as a message, a table or a line on standard output."""
    match found:
        case notes.Leftovers(journal, record, machine, stuck):
            tell(journal, record, machine, stuck)
        case notes.UnmatchedNames(names):
            tell_unmatched(names)
        case notes.RolledBack(rows, machine, lost):
            show_restored(rows, machine, lost=lost)
        case notes.FileGone(path):
            say(f"{path} is gone.")
        case _ if is_quiet() and _is_information(found):
            pass
        case _:
            note(note_text(found))


def _is_information(found: Note) -> bool:
    """Whether a note only says what is done, and warns of nothing."""
    match found:
        case notes.RunsAhead(_, _, write):
            return not write
        case notes.SearchesAhead():
            return not found.emptied
        case (
            notes.FileRunsAhead()
            | notes.ComparisonsAhead()
            | notes.OptionsWritten()
            | notes.OptionsRemoved()
        ):
            return True
    return False


_WORDS = 12
"""Words of a command that are shown: udevadm gets a path for each disk."""

_REMEDIES = {
    "systemctl": "`systemctl list-jobs` and `systemctl status hbatune` show the cause",
    "udevadm": "`ps -eo pid,stat,wchan,args | grep udev` shows the worker that hangs",
}


def _shortened(command: Sequence[str]) -> str:
    return " ".join((*command[:_WORDS], *(("…",) if len(command) > _WORDS else ())))


def _remedy(ran: Ran) -> str:
    """Return the remedy for a command that was stopped at its deadline."""
    return "" if ran.finished else f"; {_REMEDIES.get(ran.command[0], 'run hbatune again')}"


def note_text(found: Note) -> str:
    """Return a note as one sentence or two."""
    match found:
        case TaskFailed(task, error):
            return _failure(task, error)
        case notes.CommandFailed(ran):
            return f"`{_shortened(ran.command)}` failed: {ran.said}{_remedy(ran)}"
        case notes.NothingStarts(unit):
            return f"systemd does not run here: nothing starts {unit}"
        case notes.RulesNotLoaded(ran):
            return f"udev could not reload its rules: {ran.said}{_remedy(ran)}"
        case notes.FileEdited(path, tunes):
            still = ": it tunes disks still" if tunes else ""
            return f"{path} is not as hbatune wrote it, and is left{still}"
        case notes.FollowsElsewhere(other, script):
            return _follows_elsewhere(other, script)
        case notes.HistoryFull(gone):
            were = "result was" if gone == 1 else "results were"
            return f"the history is full: its {gone} oldest {were} removed"
        case notes.EarlierBoot(dropped):
            what = "of an earlier boot is dropped" if dropped else "is of an earlier boot"
            return f"the journal {what}: the reboot has put those values back"
        case notes.Stopped(compared):
            if compared:
                return "stopped as asked: what was applied stays; `hbatune rollback` puts it back"
            return (
                "stopped as asked: what was not tried is shown; `hbatune rollback` restores the "
                "rest"
            )
        case notes.RollbackCame():
            return (
                "a rollback was recorded during this run, so no profile becomes active; to tune "
                "again, run the same command again"
            )
        case notes.ValuesLeft():
            return (
                "not everything could be put back, so hbatune's own state stays: run `hbatune "
                "uninstall` again, or with --keep-values to leave the values as they are"
            )
        case notes.Leftovers() | notes.UnmatchedNames() | notes.RolledBack() | notes.FileGone():
            raise AssertionError(f"{type(found).__name__} has a form of its own")
        case notes.InitramfsStale(modules, command, of_root):
            return _initramfs(modules, command, of_root=of_root)
        case notes.OptionsWritten(path):
            return f"{path} is written; a module takes it over when it is loaded next"
        case notes.OptionsRemoved(path):
            return f"{path} is gone; a loaded module keeps what it has until it is loaded next"
        case notes.OptionsNotRemoved(path, errno):
            return f"{path} cannot be taken away: {os.strerror(errno)}"
        case _:
            return _time_ahead(found)


def _failure(task: Task, error: HbatuneError) -> str:
    said = error.message
    match task:
        case Task.RECORD_ROLLBACK | Task.SAVE_JOURNAL | Task.READ_JOURNAL:
            return f"{said}; {error.hint}"
        case Task.LIFT_ROLLBACK:
            return f"{said}; {error.hint}; until then the daemon leaves these disks alone"
        case Task.READ_CONFIGURATION:
            return f"{said}; rolled back all the same"
        case Task.DEACTIVATE_PROFILE:
            return f"{said}; the daemon leaves every disk alone all the same"
        case Task.FORGET_PROFILE:
            return f"{said}; it is left"
        case Task.SAVE_HISTORY:
            return f"the results are not kept: {said}"
        case Task.PLACE_RULES:
            return f"udev's rules are as they were: {said}"
        case Task.TELL_IRQBALANCE | Task.READ_DEVICES:
            return f"{said}; {error.hint}"
        case Task.MARK_DISKS:
            return f"{said}; {error.hint}; until then the daemon takes these disks for new ones"
        case Task.COMPARE:
            return f"nothing was compared: {said}; {error.hint}"
        case Task.REMOVE_RULES | Task.REMOVE_OPTIONS | Task.FIT_MEMORY | Task.WRITE_RULES:
            return said


def _follows_elsewhere(irqbalance: Irqbalance | Missing, script: Path) -> str:
    if isinstance(irqbalance, Missing):
        return (
            "it is unknown whether irqbalance moves the interrupts that were placed "
            f"({irqbalance.text or irqbalance.reason}); if it runs, start it as "
            f"irqbalance.service with --policyscript={script}"
        )
    policy = f", which is {irqbalance.policy} now" if irqbalance.policy else ""
    return (
        f"irqbalance (process {irqbalance.pid}) runs and may move the interrupts that were "
        f"placed; start it with --policyscript={script}{policy}, and it leaves just those"
    )


def _initramfs(modules: Sequence[str], command: str | None, *, of_root: bool) -> str:
    how = f"`{command}`" if command else "as your distribution does it"
    if not of_root:
        return f"where the initramfs holds {', '.join(modules)}, rebuild that: {how}"
    return (
        f"{', '.join(modules)} is loaded from the initramfs, since the root disk needs it: "
        f"rebuild that, {how}, or the next boot does not see the change"
    )


def _time_ahead(found: notes.TimeAhead) -> str:
    match found:
        case notes.RunsAhead(runs, seconds, write):
            what = "they WRITE, and destroy what is there" if write else "they only read"
            return f"{quantity(runs, 'run')}, {_take(runs, seconds)}; {what}"
        case notes.FileRunsAhead(runs, size, seconds):
            mib = size / (1 << 20)
            return f"{quantity(runs, 'run')} on a file of {mib:.0f} MiB, {_take(runs, seconds)}"
        case notes.SearchesAhead(disks, seconds, limit):
            most = "" if limit is None else f", and no longer than {duration(limit)}"
            return (
                f"searching {quantity(disks, 'disk')}, which takes about {duration(seconds)}"
                f"{most}; {_touches(found)}, and leaves every setting as it is"
            )
        case notes.ComparisonsAhead(endpoints, pairs, seconds, limit):
            return (
                f"comparing {quantity(endpoints, 'endpoint')} with and without the change, "
                f"{quantity(pairs, 'time')} each, "
                f"which takes about {seconds:.0f} s; where something has cost, longer, but "
                f"{limit} s at most"
            )


def _touches(found: notes.SearchesAhead) -> str:
    """Return what a search writes to."""
    if found.emptied:
        return f"it WRITES to {', '.join(found.emptied)}, and destroys what is there"
    if found.folder is not None:
        return f"it writes to a file in {found.folder} and to no disk otherwise"
    return "it only reads"


def _take(runs: int, seconds: float) -> str:
    return f"which {'takes' if runs == 1 else 'take'} about {seconds:.0f} s"
