"""Prints the rows of a plan: grouped by adapter, with equal rows of many LUNs on one line."""

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from hbatune.cli.text.documents import known
from hbatune.cli.text.output import Table, heading, say
from hbatune.facts import model
from hbatune.facts.model import Endpoint, Machine, Medium
from hbatune.plan.rows import Plan, Row, State
from hbatune.probe.selection import natural_key

_MIB = 1 << 20
_WORDS = {
    State.DRIFT: "to change",
    State.OK: "as it should be",
    State.FIXED: "fixed by kernel or driver",
    State.PENDING: "pending",
    State.ABSENT: "absent",
    State.UNREADABLE: "unreadable",
    State.EXCLUDED: "left alone",
}
NOTHING = "-"


class AdapterRow(Protocol):
    """A row about one target, with the adapter that it belongs to."""

    @property
    def target(self) -> str: ...  # noqa: D102

    @property
    def adapter(self) -> str | None: ...  # noqa: D102


R = TypeVar("R", bound=AdapterRow)


def show_rows(rows: Sequence[Row], machine: Machine, *, unfold: bool) -> None:
    """Print the rows by adapter; rows that are right already only with ``unfold``."""
    for adapter, group in group_by_adapter(rows).items():
        shown_rows = [row for row in group if unfold or _worth_showing(row)]
        if not shown_rows:
            continue
        heading(adapter_line(adapter, machine))
        table = Table(["TARGET", "SETTING", "CURRENT", "WANTED", "STATE", "WHY"], wraps="WHY")
        table.rows = [
            [
                targets_text(targets),
                row.setting,
                shown(row.current),
                _to_be(row),
                _state(row),
                _why(row),
            ]
            for targets, row in fold(shown_rows, _unfolded if unfold else _content)
        ]
        table.show()
        say()


def outcome_line(plan: Plan, rows: Collection[Row]) -> str:
    """Return one sentence with the number of rows for each outcome."""
    outcomes = Counter(str(row.outcome) for row in rows if row.outcome is not None)
    parts = [f"{count} {outcome}" for outcome, count in sorted(outcomes.items())]
    others = Counter(row.state for row in rows if row.outcome is None)
    parts += [f"{others[state]} {word}" for state, word in _WORDS.items() if others[state]]
    return f"Profile {plan.profile}: {', '.join(parts) or 'nothing to set on this machine'}."


def summary_line(plan: Plan, rows: Collection[Row]) -> str:
    """Return one sentence with the number of rows for each state, and the memory needed."""
    states = Counter(row.state for row in rows)
    parts = [f"{states[state]} {word}" for state, word in _WORDS.items() if states[state]]
    text = f"Profile {plan.profile}: {', '.join(parts) or 'nothing to set on this machine'}."
    if plan.memory.added >= _MIB:
        text += f" The requests to come cost {plan.memory.added / _MIB:.0f} MiB of memory."
    return text


def group_by_adapter(rows: Iterable[R]) -> dict[str | None, list[R]]:
    """Return the rows of each adapter, in their order; the key None is for maps over several."""
    groups: dict[str | None, list[R]] = {}
    for row in rows:
        groups.setdefault(row.adapter, []).append(row)
    return groups


def fold(rows: Iterable[R], content: Callable[[R], object]) -> Iterator[tuple[list[str], R]]:
    """Yield the targets whose rows have the same content, and one of those rows."""
    alike: dict[object, tuple[list[str], R]] = {}
    for row in rows:
        alike.setdefault(content(row), ([], row))[0].append(row.target)
    for targets, row in alike.values():
        yield sorted(targets, key=natural_key), row


def targets_text(targets: Sequence[str]) -> str:
    """Return a few names, or the first and last of many with their count."""
    if len(targets) <= 3:
        return " ".join(targets)
    return f"{targets[0]} … {targets[-1]} ({len(targets)})"


def adapter_line(target: str | None, machine: Machine) -> str:
    """Return one line that identifies an adapter."""
    adapter = next((each for each in machine.adapters if each.target == target), None)
    if adapter is None:
        return "several adapters" if target is None else target
    driver, firmware = known(adapter.driver_version), known(adapter.firmware)
    parts = [
        adapter.target,
        adapter.controller,
        adapter.family,
        driver and f"driver {driver}",
        firmware and f"firmware {firmware}",
    ]
    return "  ".join(part for part in parts if part)


def medium_text(endpoint: Endpoint) -> str:
    """Return protocol and medium of an endpoint: ``sata ssd``, ``nvme``, ``unknown``."""
    if endpoint.protocol is model.Protocol.UNKNOWN:
        return "unknown"
    if endpoint.medium is Medium.UNKNOWN or str(endpoint.medium) == str(endpoint.protocol):
        return str(endpoint.protocol)
    return f"{endpoint.protocol} {endpoint.medium}"


def shown(value: object) -> str:
    """Return a value as text, and a dash for none."""
    return NOTHING if value is None else str(value)


def _content(row: Row) -> tuple[object, ...]:
    planned = (row.setting, row.current, row.value, row.state, row.limit, row.rule)
    return (*planned, row.outcome, row.errno, row.found)


def _unfolded(row: Row) -> tuple[object, ...]:
    return row.target, row.setting


def _worth_showing(row: Row) -> bool:
    # A rule for all adapters names settings that most of them do not have; that is no news.
    lacking = row.state is State.ABSENT and row.target == row.adapter
    return row.state is not State.OK and not lacking


def _to_be(row: Row) -> str:
    # In the other states no value will be written, and showing one would promise it.
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
