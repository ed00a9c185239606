"""Print the notes and progress of operations to standard error, and rollbacks as tables."""

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from hbatune.act.system import ToolResult
from hbatune.errors import HbatuneError
from hbatune.facts.model import Machine, Missing
from hbatune.facts.names import natural_key
from hbatune.facts.services import Irqbalance
from hbatune.operations import context
from hbatune.operations.context import Advance, Note, Phase, Task, TaskFailed
from hbatune.plan.rows import Outcome, Restored
from hbatune.text.basic_output import format_count, is_quiet
from hbatune.text.leftovers import print_leftovers, print_unmatched
from hbatune.text.plan_tables import (
    fold_names,
    fold_rows,
    format_adapter,
    format_value,
    group_by_adapter,
    group_equal_rows,
)
from hbatune.text.tables import (
    Cell,
    Column,
    Table,
    make_id_column,
    make_reason_column,
    make_state_column,
    make_value_column,
)
from hbatune.text.terminal import print_heading, print_line, print_note, show_progress, show_table
from hbatune.text.units import format_duration

_WOULD = (
    make_id_column("TARGET"),
    make_id_column("SETTING"),
    make_value_column("IS"),
    make_value_column("WOULD GO BACK TO"),
    make_reason_column("WHY NOT"),
)

_NO_ROWS = {
    False: "Nothing to put back: the journal is empty.",
    True: "No values could be restored: their original values are lost.",
}
_COLUMNS = (
    make_id_column("TARGET"),
    make_id_column("SETTING"),
    make_value_column("WAS"),
    make_value_column("IS BACK AT"),
    make_state_column("OUTCOME"),
    make_reason_column("WHY"),
)


def show_preview(rows: Sequence[Restored], machine: Machine, *, lost: bool = False) -> None:
    """Print by adapter the values that a rollback would restore or could not, and their number.

    ``lost`` is whether the journal has lost other original values.
    """
    _show_rows(rows, machine, _WOULD, _make_preview_cells)
    back = sum(row.outcome is None for row in rows)
    refused = sum(row.outcome is not None and not row.done for row in rows)
    if not rows:
        print_line(_NO_ROWS[lost])
    else:
        unchanged = len(rows) - back - refused
        could = f"; {refused} could not" if refused else ""
        print_line(f"{format_count(back, 'value')} would go back{could}; {unchanged} need nothing.")
        print_line("Nothing was written.")


def show_restored(rows: Sequence[Restored], machine: Machine, *, lost: bool = False) -> None:
    """Print the restored values by adapter, and the number of original values.

    ``lost`` is whether the journal has lost other original values.
    """
    _show_rows(rows, machine, _COLUMNS, _make_cells)
    refused, removed = sum(not row.done for row in rows), sum(row.gone for row in rows)
    their = "its" if removed == 1 else "their"
    went = f"; {removed} went with {their} disk or {their} scheduler" if removed else ""
    went += "; others are lost" if lost else ""
    if not rows:
        print_line(_NO_ROWS[lost])
    elif not refused:
        back = len(rows) - removed
        print_line(
            f"{'All ' * (back > 1 and not lost)}{_count_restored(back)} "
            f"before the first apply{went}."
        )
    else:
        back = len(rows) - refused - removed
        print_line(f"{_count_restored(back)}; {refused} could not be put back{went}.")


def _show_rows(
    rows: Sequence[Restored],
    machine: Machine,
    columns: Sequence[Column],
    cells: Callable[[Sequence[str], Restored], list[Cell]],
) -> None:
    """Print a table for each adapter, without the rows that needed no restore."""
    for adapter, group in group_by_adapter(rows).items():
        changed = [row for row in group if row.outcome is not Outcome.KEPT]
        if changed:
            print_heading(format_adapter(adapter, machine))
            folded = sorted(
                fold_rows(changed, _get_content),
                key=lambda folded_row: natural_key(folded_row[0][0]),
            )
            rows_shown = group_equal_rows(folded, lambda folded_row: _explain_row(folded_row[1]))
            show_table(Table(columns, [cells(*folded_row) for folded_row in rows_shown]))
            print_line()


def _count_restored(values: int) -> str:
    return (
        f"{format_count(values, 'value')} {'is as it was' if values == 1 else 'are as they were'}"
    )


def _get_content(row: Restored) -> tuple[object, ...]:
    return row.setting, row.current, row.before, row.outcome, row.errno, row.found, row.limit


def _make_cells(targets: Sequence[str], row: Restored) -> list[Cell]:
    values = [
        format_value(row.current),
        format_value(row.before),
        str(row.outcome),
        _explain_row(row),
    ]
    return [fold_names(targets), row.setting, *values]


def _make_preview_cells(targets: Sequence[str], row: Restored) -> list[Cell]:
    why_not = "" if row.outcome is None else _explain_row(row)
    return [
        fold_names(targets),
        row.setting,
        format_value(row.current),
        format_value(row.before),
        why_not,
    ]


def _explain_row(row: Restored) -> str:
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
"""Advice if the kernel would reject the old value now."""


class TextReporter:
    """A reporter that prints, for a terminal or a log."""

    def note(self, note: Note) -> None:
        """Print a note."""
        show_note(note)

    def progress(self, phase: Phase, total: int) -> AbstractContextManager[Advance]:
        """Show a bar on a terminal."""
        return show_progress(phase, total)


def show_note(operation_note: Note) -> None:
    """Print a note: as a message, a table or a line on standard output."""
    match operation_note:
        case context.InterruptedRuns(journal, record, machine, stuck):
            print_leftovers(journal, record, machine, stuck)
        case context.UnmatchedNames(names):
            print_unmatched(names)
        case context.RolledBack(rows, machine, lost):
            show_restored(rows, machine, lost=lost)
        case context.FileRemoved(path):
            print_line(f"{path} is gone.")
        case _ if is_quiet() and _is_information(operation_note):
            pass
        case _:
            print_note(format_note(operation_note))


def _is_information(note: Note) -> bool:
    """Return whether a note only informs and warns of nothing."""
    match note:
        case context.RunsAhead(_, _, write):
            return not write
        case context.SearchesAhead():
            return not note.emptied
        case (
            context.FileRunsAhead()
            | context.ComparisonsAhead()
            | context.OptionsWritten()
            | context.OptionsRemoved()
        ):
            return True
    return False


_WORDS = 12
"""The number of shown words of a command: udevadm gets a path for each disk."""

_REMEDIES = {
    "systemctl": "`systemctl list-jobs` and `systemctl status hbatune` show the cause",
    "udevadm": "`ps -eo pid,stat,wchan,args | grep udev` shows the worker that hangs",
}


def _shorten_command(command: Sequence[str]) -> str:
    return " ".join((*command[:_WORDS], *(("…",) if len(command) > _WORDS else ())))


def _suggest_remedy(ran: ToolResult) -> str:
    """Return the remedy for a command that was stopped at its deadline."""
    return "" if ran.finished else f"; {_REMEDIES.get(ran.command[0], 'run hbatune again')}"


def format_note(note: Note) -> str:
    """Return a note as one sentence or two."""
    match note:
        case TaskFailed(task, error):
            return _describe_failure(task, error)
        case context.CommandFailed(ran):
            return f"`{_shorten_command(ran.command)}` failed: {ran.said}{_suggest_remedy(ran)}"
        case context.NothingStarts(unit):
            return f"systemd does not run here: nothing starts {unit}"
        case context.RulesNotLoaded(ran):
            return f"udev could not reload its rules: {ran.said}{_suggest_remedy(ran)}"
        case context.FileEdited(path, tunes):
            still = ": it tunes disks still" if tunes else ""
            return f"{path} is not as hbatune wrote it, and is left{still}"
        case context.FollowsElsewhere(irqbalance, script):
            return _describe_irqbalance(irqbalance, script)
        case context.HistoryFull(removed):
            were = "result was" if removed == 1 else "results were"
            return f"the history is full: its {removed} oldest {were} removed"
        case context.EarlierBoot(dropped):
            fate = "of an earlier boot is dropped" if dropped else "is of an earlier boot"
            return f"the journal {fate}: the reboot has put those values back"
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
            raise AssertionError(f"{type(note).__name__} has a form of its own")
        case context.InitramfsStale(modules, command, of_root):
            return _describe_initramfs(modules, command, of_root=of_root)
        case context.OptionsWritten(path):
            return f"{path} is written; a module takes it over when it is loaded next"
        case context.OptionsRemoved(path):
            return f"{path} is gone; a loaded module keeps what it has until it is loaded next"
        case context.OptionsNotRemoved(path, errno):
            return f"{path} cannot be taken away: {os.strerror(errno)}"
        case _:
            return _describe_time_ahead(note)


def _describe_failure(task: Task, error: HbatuneError) -> str:
    message = error.message
    match task:
        case Task.RECORD_ROLLBACK | Task.SAVE_JOURNAL | Task.READ_JOURNAL:
            return f"{message}; {error.hint}"
        case Task.LIFT_ROLLBACK:
            return f"{message}; {error.hint}; until then the daemon leaves these disks alone"
        case Task.READ_CONFIGURATION:
            return f"{message}; rolled back all the same"
        case Task.DEACTIVATE_PROFILE:
            return f"{message}; the daemon leaves every disk alone all the same"
        case Task.FORGET_PROFILE:
            return f"{message}; it is left"
        case Task.SAVE_HISTORY:
            return f"the results are not kept: {message}"
        case Task.PLACE_RULES:
            return f"udev's rules are as they were: {message}"
        case Task.TELL_IRQBALANCE | Task.READ_DEVICES:
            return f"{message}; {error.hint}"
        case Task.MARK_DISKS:
            return f"{message}; {error.hint}; until then the daemon takes these disks for new ones"
        case Task.COMPARE:
            return f"nothing was compared: {message}; {error.hint}"
        case Task.REMOVE_RULES | Task.REMOVE_OPTIONS | Task.FIT_MEMORY | Task.WRITE_RULES:
            return message


def _describe_irqbalance(irqbalance: Irqbalance | Missing, script: Path) -> str:
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


def _describe_initramfs(modules: Sequence[str], command: str | None, *, of_root: bool) -> str:
    how = f"`{command}`" if command else "as your distribution does it"
    if not of_root:
        return f"where the initramfs holds {', '.join(modules)}, rebuild that: {how}"
    return (
        f"{', '.join(modules)} is loaded from the initramfs, since the root disk needs it: "
        f"rebuild that, {how}, or the next boot does not see the change"
    )


def _describe_time_ahead(note: context.TimeAhead) -> str:
    match note:
        case context.RunsAhead(runs, seconds, write):
            effect = "they WRITE, and destroy what is there" if write else "they only read"
            return f"{format_count(runs, 'run')}, {_describe_time(runs, seconds)}; {effect}"
        case context.FileRunsAhead(runs, size, seconds):
            mib = size / (1 << 20)
            return (
                f"{format_count(runs, 'run')} on a file of {mib:.0f} MiB, "
                f"{_describe_time(runs, seconds)}"
            )
        case context.SearchesAhead(disks, seconds, limit):
            limit_text = "" if limit is None else f", and no longer than {format_duration(limit)}"
            return (
                f"searching {format_count(disks, 'disk')}, which takes about "
                f"{format_duration(seconds)}"
                f"{limit_text}; {_describe_writes(note)}, and leaves every setting as it is"
            )
        case context.ComparisonsAhead(endpoints, pairs, seconds, limit):
            return (
                f"comparing {format_count(endpoints, 'endpoint')} with and without the change, "
                f"{format_count(pairs, 'time')} each, "
                f"which takes about {seconds:.0f} s; where something has cost, longer, but "
                f"{limit} s at most"
            )


def _describe_writes(note: context.SearchesAhead) -> str:
    """Describe the writes of a search."""
    if note.emptied:
        return f"it WRITES to {', '.join(note.emptied)}, and destroys what is there"
    if note.folder is not None:
        return f"it writes to a file in {note.folder} and to no disk otherwise"
    return "it only reads"


def _describe_time(runs: int, seconds: float) -> str:
    return f"which {'takes' if runs == 1 else 'take'} about {seconds:.0f} s"
