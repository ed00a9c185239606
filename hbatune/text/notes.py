"""Text of an operation's notes and of restored values.

The result of a rollback, as a table.

Prints the notes and the progress of operations on standard error.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from hbatune.act.system import Ran
from hbatune.errors import HbatuneError
from hbatune.facts.model import Machine, Missing
from hbatune.facts.names import natural_key
from hbatune.facts.services import Irqbalance
from hbatune.operations import context
from hbatune.operations.context import Advance, Note, Phase, Task, TaskFailed
from hbatune.plan.rows import Outcome, Restored
from hbatune.text.basic_output import is_quiet, quantity
from hbatune.text.leftovers import tell, tell_unmatched
from hbatune.text.plan_tables import (
    adapter_line,
    fold,
    group_by_adapter,
    shown,
    target_names,
    together,
)
from hbatune.text.tables import Cell, Column, Table, identity, reasons, state, value
from hbatune.text.terminal import heading, note, progress, say, show_table
from hbatune.text.units import duration

_WOULD = (
    identity("TARGET"),
    identity("SETTING"),
    value("IS"),
    value("WOULD GO BACK TO"),
    reasons("WHY NOT"),
)

_NO_ROWS = {
    False: "Nothing to put back: the journal is empty.",
    True: "No values could be restored: their original values are lost.",
}
_COLUMNS = (
    identity("TARGET"),
    identity("SETTING"),
    value("WAS"),
    value("IS BACK AT"),
    state("OUTCOME"),
    reasons("WHY"),
)


def show_preview(rows: Sequence[Restored], machine: Machine, *, lost: bool = False) -> None:
    """Print by adapter what a rollback would put back, what it could not, and how many values.

    ``lost`` says that the journal has lost other original values.
    """
    _show_rows(rows, machine, _WOULD, _would)
    back = sum(row.outcome is None for row in rows)
    refused = sum(row.outcome is not None and not row.done for row in rows)
    if not rows:
        say(_NO_ROWS[lost])
    else:
        there = len(rows) - back - refused
        could = f"; {refused} could not" if refused else ""
        say(f"{quantity(back, 'value')} would go back{could}; {there} need nothing.")
        say("Nothing was written.")


def show_restored(rows: Sequence[Restored], machine: Machine, *, lost: bool = False) -> None:
    """Print the restored values by adapter, and how many of all are as they were.

    ``lost`` says that the journal has lost other original values.
    """
    _show_rows(rows, machine, _COLUMNS, _cells)
    refused, gone = sum(not row.done for row in rows), sum(row.gone for row in rows)
    their = "its" if gone == 1 else "their"
    went = f"; {gone} went with {their} disk or {their} scheduler" if gone else ""
    went += "; others are lost" if lost else ""
    if not rows:
        say(_NO_ROWS[lost])
    elif not refused:
        back = len(rows) - gone
        say(f"{'All ' * (back > 1 and not lost)}{_as_before(back)} before the first apply{went}.")
    else:
        back = len(rows) - refused - gone
        say(f"{_as_before(back)}; {refused} could not be put back{went}.")


def _show_rows(
    rows: Sequence[Restored],
    machine: Machine,
    columns: Sequence[Column],
    cells: Callable[[Sequence[str], Restored], list[Cell]],
) -> None:
    """Print a table for each adapter, of the rows whose value is not as it was already."""
    for adapter, group in group_by_adapter(rows).items():
        changed = [row for row in group if row.outcome is not Outcome.KEPT]
        if changed:
            heading(adapter_line(adapter, machine))
            folded = sorted(fold(changed, _content), key=lambda each: natural_key(each[0][0]))
            rows_shown = together(folded, lambda each: _why(each[1]))
            show_table(Table(columns, [cells(*each) for each in rows_shown]))
            say()


def _as_before(values: int) -> str:
    return f"{quantity(values, 'value')} {'is as it was' if values == 1 else 'are as they were'}"


def _content(row: Restored) -> tuple[object, ...]:
    return row.setting, row.current, row.before, row.outcome, row.errno, row.found, row.limit


def _cells(targets: Sequence[str], row: Restored) -> list[Cell]:
    values = [shown(row.current), shown(row.before), str(row.outcome), _why(row)]
    return [target_names(targets), row.setting, *values]


def _would(targets: Sequence[str], row: Restored) -> list[Cell]:
    why_not = "" if row.outcome is None else _why(row)
    return [target_names(targets), row.setting, shown(row.current), shown(row.before), why_not]


def _why(row: Restored) -> str:
    reasons = ["it is gone, and its values with it"] if row.gone and row.limit is None else []
    if row.errno:
        reasons.append(os.strerror(row.errno))
    if row.limit is not None:
        reasons.append(row.limit)
    if row.found is not None and row.found != row.before:
        reasons.append(f"reads {row.found}")
    if not row.done and row.setting in _ADVICE:
        reasons.append(_ADVICE[row.setting])
    return "; ".join(reasons)


_ADVICE = {
    "nr_requests": "set its former scheduler and roll back again",
    "max_sectors_kb": "lower the map's max_sectors_kb or flush the map, and roll back again",
}
"""Advice where the old value would not be legal now."""


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
        case context.InterruptedRuns(journal, record, machine, stuck):
            tell(journal, record, machine, stuck)
        case context.UnmatchedNames(names):
            tell_unmatched(names)
        case context.RolledBack(rows, machine, lost):
            show_restored(rows, machine, lost=lost)
        case context.FileRemoved(path):
            say(f"{path} is gone.")
        case _ if is_quiet() and _is_information(found):
            pass
        case _:
            note(note_text(found))


def _is_information(found: Note) -> bool:
    """Whether a note only says what is done, and warns of nothing."""
    match found:
        case context.RunsAhead(_, _, write):
            return not write
        case context.SearchesAhead():
            return not found.emptied
        case (
            context.FileRunsAhead()
            | context.ComparisonsAhead()
            | context.OptionsWritten()
            | context.OptionsRemoved()
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
        case context.CommandFailed(ran):
            return f"`{_shortened(ran.command)}` failed: {ran.said}{_remedy(ran)}"
        case context.NothingStarts(unit):
            return f"systemd does not run here: nothing starts {unit}"
        case context.RulesNotLoaded(ran):
            return f"udev could not reload its rules: {ran.said}{_remedy(ran)}"
        case context.FileEdited(path, tunes):
            still = ": it tunes disks still" if tunes else ""
            return f"{path} is not as hbatune wrote it, and is left{still}"
        case context.FollowsElsewhere(other, script):
            return _follows_elsewhere(other, script)
        case context.HistoryFull(gone):
            were = "result was" if gone == 1 else "results were"
            return f"the history is full: its {gone} oldest {were} removed"
        case context.EarlierBoot(dropped):
            what = "of an earlier boot is dropped" if dropped else "is of an earlier boot"
            return f"the journal {what}: the reboot has put those values back"
        case context.Stopped(compared):
            if compared:
                return "stopped as asked: what was applied stays; `hbatune rollback` puts it back"
            return (
                "stopped as asked: what was not tried is shown; `hbatune rollback` restores the "
                "rest"
            )
        case context.RollbackCame():
            return (
                "a rollback was recorded during this run, so no profile becomes active; to tune "
                "again, run the same command again"
            )
        case context.UnrestoredValues():
            return (
                "not everything could be put back, so hbatune's own state stays: run `hbatune "
                "uninstall` again, or with --keep-values to leave the values as they are"
            )
        case (
            context.InterruptedRuns()
            | context.UnmatchedNames()
            | context.RolledBack()
            | context.FileRemoved()
        ):
            raise AssertionError(f"{type(found).__name__} has a form of its own")
        case context.InitramfsStale(modules, command, of_root):
            return _initramfs(modules, command, of_root=of_root)
        case context.OptionsWritten(path):
            return f"{path} is written; a module takes it over when it is loaded next"
        case context.OptionsRemoved(path):
            return f"{path} is gone; a loaded module keeps what it has until it is loaded next"
        case context.OptionsNotRemoved(path, errno):
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


def _time_ahead(found: context.TimeAhead) -> str:
    match found:
        case context.RunsAhead(runs, seconds, write):
            what = "they WRITE, and destroy what is there" if write else "they only read"
            return f"{quantity(runs, 'run')}, {_take(runs, seconds)}; {what}"
        case context.FileRunsAhead(runs, size, seconds):
            mib = size / (1 << 20)
            return f"{quantity(runs, 'run')} on a file of {mib:.0f} MiB, {_take(runs, seconds)}"
        case context.SearchesAhead(disks, seconds, limit):
            most = "" if limit is None else f", and no longer than {duration(limit)}"
            return (
                f"searching {quantity(disks, 'disk')}, which takes about {duration(seconds)}"
                f"{most}; {_touches(found)}, and leaves every setting as it is"
            )
        case context.ComparisonsAhead(endpoints, pairs, seconds, limit):
            return (
                f"comparing {quantity(endpoints, 'endpoint')} with and without the change, "
                f"{quantity(pairs, 'time')} each, "
                f"which takes about {seconds:.0f} s; where something has cost, longer, but "
                f"{limit} s at most"
            )


def _touches(found: context.SearchesAhead) -> str:
    """Return what a search writes to."""
    if found.emptied:
        return f"it WRITES to {', '.join(found.emptied)}, and destroys what is there"
    if found.folder is not None:
        return f"it writes to a file in {found.folder} and to no disk otherwise"
    return "it only reads"


def _take(runs: int, seconds: float) -> str:
    return f"which {'takes' if runs == 1 else 'take'} about {seconds:.0f} s"
