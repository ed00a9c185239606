"""The section on changes and their reasons, from the journal, the plan and the history."""

from collections.abc import Iterable, Iterator, Sequence

from hbatune.cli.text.rows import shown, targets_text
from hbatune.cli.text.verdicts import METRICS, change_text
from hbatune.plan.rows import Row, State
from hbatune.probe.history import Record, ValueChange
from hbatune.probe.selection import natural_key
from hbatune.report.page import Block, Howto, PageSection, PageTable, ReportData
from hbatune.settings.table import Value

AFFINITY = "irq_affinity"
_WHY = "Why (source)"


def changes(data: ReportData) -> PageSection:
    """Return the section: settings changed, settings reverted, and the rest of the plan."""
    blocks = [
        _block(
            "Set",
            "Settings that hbatune has changed since this host was booted",
            _set(data),
        ),
        _block("Tried and put back", "Settings that cost more than they gave", _put_back(data)),
        _block("Still to change", "Settings that differ from the profile", _drift(data)),
        _block(
            "Cannot be changed here", "Settings that the kernel or the driver fixes", _fixed(data)
        ),
    ]
    found = tuple(block for block in blocks if block is not None)
    howto = Howto(_nothing(data), data.apply)
    return PageSection("changes", "What was changed, and why", found, howto)


def _nothing(data: ReportData) -> str:
    """Return the reason why there is nothing to show."""
    then = "no profile is active" if data.plan is None else "nothing differs from the profile"
    if data.recorded:
        return f"A snapshot holds no values from before, and {then}."
    return f"Nothing has been changed since this host was booted, and {then}."


def set_count(data: ReportData) -> int:
    """Return how many settings differ from their baselines."""
    return sum(1 for _ in _changed(data))


def _block(name: str, caption: str, found: tuple[tuple[str, ...], list[list[str]]]) -> Block | None:
    heads, rows = found
    if not rows:
        return None
    return Block(name, tables=(PageTable(caption, heads, tuple(map(tuple, rows)), wide=True),))


def _set(data: ReportData) -> tuple[tuple[str, ...], list[list[str]]]:
    return ("Target", "Setting", "Before", "Set to", _WHY), list(_cells(_changed(data)))


def _cells(rows: Iterable[Row]) -> Iterator[list[str]]:
    """Yield one line for all targets with the same change for the same reason."""
    for alike in _alike(rows):
        targets = targets_text([row.target for row in alike])
        row, now, value = alike[0], _span(alike, "current"), _span(alike, "value")
        yield [targets, row.setting, now, value, _why(row)]


def _alike(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Yield groups of equal rows; the CPUs of vectors may differ within a group."""
    found: dict[object, list[Row]] = {}
    for row in rows:
        values = () if row.setting == AFFINITY else (row.current, row.value)
        key = (row.adapter, row.setting, row.limit, row.rule, *values)
        found.setdefault(key, []).append(row)
    for alike in found.values():
        yield sorted(alike, key=lambda row: natural_key(row.target))


def _span(rows: Sequence[Row], field: str) -> str:
    """Return the value that the rows share, or the first and the last of several."""
    values = list(dict.fromkeys(shown(getattr(row, field)) for row in rows))
    return values[0] if len(values) == 1 else f"{values[0]} … {values[-1]}"


def _changed(data: ReportData) -> Iterator[Row]:
    """Yield a row for each changed setting in the journal, with the reason from the plan."""
    planned = {(row.id, row.setting): row for row in data.plan.rows} if data.plan else {}
    for entry in data.journal.entries:
        if entry.value is None or entry.value == entry.before:
            continue
        row = planned.get(entry.key)
        yield Row(
            target=entry.target,
            id=entry.id,
            adapter=entry.adapter,
            setting=entry.setting,
            current=entry.before,
            wanted=entry.value,
            value=entry.value,
            state=State.OK,
            limit=_since(entry.value, row),
            why=row.why if row else "no rule of this profile is about it",
            source=row.source if row else "",
            rule=row.rule if row else "",
        )


def _since(value: Value, row: Row | None) -> str | None:
    """Return that the value has changed since, or else the limit that decided it."""
    if row is None:
        return None
    if row.current is not None and row.current != value:
        return f"it is {row.current} by now"
    return row.limit


def _put_back(data: ReportData) -> tuple[tuple[str, ...], list[list[str]]]:
    found: dict[ValueChange, Record] = {}
    for record in sorted(data.records, key=lambda record: record.time):
        for each in record.settings:
            if each.setting in record.reverted:
                # A revert has several proofs; the newest one that shows the cost explains it.
                beyond = record.proof is not None and record.proof.verdict.beyond
                if beyond or each not in found:
                    found[each] = record
    heads = ("Target", "Setting", "Back at", "Tried", "What it cost")
    rows = [
        [each.target, each.setting, shown(each.before), shown(each.after), _cost(record)]
        for each, record in found.items()
    ]
    return heads, rows


def _cost(record: Record) -> str:
    if record.proof is None:
        return shown(None)
    beyond = [change for change in record.proof.verdict.changes if change.beyond]
    return "; ".join(f"{METRICS[each.metric]} {change_text(each)}" for each in beyond) or shown(
        None
    )


def _drift(data: ReportData) -> tuple[tuple[str, ...], list[list[str]]]:
    heads = ("Target", "Setting", "Current", "Wanted", _WHY)
    return heads, list(_cells(_in_state(data, State.DRIFT)))


def _fixed(data: ReportData) -> tuple[tuple[str, ...], list[list[str]]]:
    heads = ("Target", "Setting", "Current", "Wanted", "Why not")
    rows = []
    for alike in _alike(_in_state(data, State.FIXED)):
        row, targets = alike[0], targets_text([row.target for row in alike])
        now = _span(alike, "current")
        rows.append([targets, row.setting, now, shown(row.wanted), shown(row.limit)])
    return heads, rows


def _in_state(data: ReportData, state: State) -> list[Row]:
    return [row for row in data.plan.rows if row.state is state] if data.plan else []


def _why(row: Row) -> str:
    reason = f"{row.why} ({row.source})" if row.source else row.why
    return f"{row.limit}; {reason}" if row.limit else reason
