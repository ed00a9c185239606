"""A plan for people: what `diff` and `apply` show of its rows."""

import os
from collections import Counter
from collections.abc import Collection, Sequence

from hbatune.cli.text.fold import adapter_line, by_adapter, fold, names, shown
from hbatune.cli.text.output import Table, heading, say
from hbatune.facts.model import Machine
from hbatune.plan.rows import Plan, Row, State

_MIB = 1 << 20


def show_rows(rows: Sequence[Row], machine: Machine, *, unfold: bool) -> None:
    """Print the rows by adapter; what is right already only where everything is asked for."""
    for adapter, group in by_adapter(rows).items():
        shown_rows = [row for row in group if unfold or _worth_showing(row)]
        if not shown_rows:
            continue
        heading(adapter_line(adapter, machine))
        table = Table(["TARGET", "SETTING", "NOW", "TO BE", "STATE", "WHY"], wraps="WHY")
        table.rows = [
            [names(targets), row.setting, shown(row.current), _to_be(row), _state(row), _why(row)]
            for targets, row in fold(shown_rows, _unfolded if unfold else _content)
        ]
        table.show()
        say()


def _content(row: Row) -> tuple[object, ...]:
    planned = (row.setting, row.current, row.value, row.state, row.limit, row.rule)
    return (*planned, row.outcome, row.errno, row.found)


def _unfolded(row: Row) -> tuple[object, ...]:
    return row.target, row.setting


def _worth_showing(row: Row) -> bool:
    lacking = row.state is State.ABSENT and row.target == row.adapter
    return row.state is not State.OK and not lacking


def _to_be(row: Row) -> str:
    return shown(row.value if row.state in (State.OK, State.DRIFT, State.PENDING) else None)


def _state(row: Row) -> str:
    return str(row.outcome) if row.outcome is not None else str(row.state)


def _why(row: Row) -> str:
    reasons = [row.limit, f"{row.why} ({row.source})" if row.state is not State.EXCLUDED else None]
    if row.errno is not None:
        reasons.insert(0, os.strerror(row.errno))
    if row.found is not None:
        reasons.insert(0, f"reads {row.found}")
    return "; ".join(reason for reason in reasons if reason)


def outcome_line(plan: Plan, rows: Collection[Row]) -> str:
    """Return one sentence that counts what came of the rows."""
    outcomes = Counter(str(row.outcome) for row in rows if row.outcome is not None)
    parts = [f"{count} {outcome}" for outcome, count in sorted(outcomes.items())]
    others = Counter(row.state for row in rows if row.outcome is None)
    parts += [f"{others[state]} {word}" for state, word in _WORDS.items() if others[state]]
    return f"Profile {plan.profile}: {', '.join(parts) or 'nothing to set on this machine'}."


def summary_line(plan: Plan, rows: Collection[Row]) -> str:
    """Return one sentence that counts the rows, and the memory that the plan costs."""
    states = Counter(row.state for row in rows)
    parts = [f"{states[state]} {word}" for state, word in _WORDS.items() if states[state]]
    text = f"Profile {plan.profile}: {', '.join(parts) or 'nothing to set on this machine'}."
    if plan.memory.added >= _MIB:
        text += f" The requests to come cost {plan.memory.added / _MIB:.0f} MiB of memory."
    return text


_WORDS = {
    State.DRIFT: "to change",
    State.OK: "as it should be",
    State.FIXED: "fixed by kernel or driver",
    State.PENDING: "pending",
    State.ABSENT: "absent",
    State.UNREADABLE: "unreadable",
    State.EXCLUDED: "left alone",
}
