"""The result of a rollback, as a table."""

import os
from collections.abc import Callable, Sequence

from hbatune.cli.text.output import heading, say, show_table
from hbatune.cli.text.quantity import quantity
from hbatune.cli.text.rows import (
    adapter_line,
    fold,
    group_by_adapter,
    shown,
    target_names,
    together,
)
from hbatune.cli.text.table import Cell, Column, Table, identity, reasons, state, value
from hbatune.facts.model import Machine
from hbatune.facts.names import natural_key
from hbatune.plan.rows import Outcome, Restored

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
