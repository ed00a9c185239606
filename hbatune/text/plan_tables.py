"""Print the rows of a plan as tables, and compare the plan with vendor recommendations."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol, TypeVar

from hbatune.facts import model
from hbatune.facts.model import Endpoint, Machine, Medium, Missing, TargetKind
from hbatune.facts.names import group_items, natural_key, shorten_names
from hbatune.plan.rows import Plan, Restored, Row, SkippedDisk, State, count_settings
from hbatune.settings.table import SETTINGS
from hbatune.shipped import fill_message
from hbatune.text.basic_output import format_count
from hbatune.text.limit_text import describe_limit, explain_limit
from hbatune.text.tables import EMPTY_CELL, Cell, Table, load_columns, make_columns
from hbatune.text.terminal import get_width, print_heading, print_line, show_section, show_table

if TYPE_CHECKING:  # most plans have no advice
    from hbatune.operations.apply import ApplyResult
    from hbatune.operations.differences import Differences
    from hbatune.plan.advice import Advice

_ROW_COLUMNS = make_columns(
    "id TARGET | id SETTING | value CURRENT | value WANTED | state STATE | text WHY"
)
_GROUP_COLUMNS = make_columns("id | value | state | text")  # without titles
_get_advice_content = attrgetter("rule", "current", "value", "planned", "stance", "limit")
_SHARED_FIELDS = ("setting", "state", "limit", "rule", "outcome", "errno", "found")
_get_shared_content = attrgetter(*_SHARED_FIELDS)
_get_row_content = attrgetter(*_SHARED_FIELDS, "current", "value")


def show_advice(advice: Sequence[Advice], *, unfold: bool) -> None:
    """Print the advice that the plan does not meet, or with ``unfold`` all; equal advice once."""
    listed = [item for item in advice if unfold or not item.is_followed]
    if not listed:
        return
    table = Table(load_columns("advice"))
    for targets, item in fold_rows(listed, _get_advice_content):
        names = fold_names([item.target] if unfold else targets)
        advised = "unchanged" if item.advised is None else str(item.advised)
        values = [format_value(item.current), advised, str(item.stance)]
        table.rows.append([names, item.setting, *values, list_advice_reasons(item)])
    show_section("Vendor recommendations", table)


def list_advice_reasons(advice: Advice) -> tuple[str, ...]:
    """Return the reasons of an advice: the vendor's reason, a conflict, a limit, a note."""
    parts = [f"{advice.vendor}: {advice.why} ({advice.source})"]
    if advice.against is not None:
        parts.append(f"against rule {advice.against} of the profile, which sets {advice.planned}")
    if advice.limit is not None:
        parts.append(f"here: {describe_limit(advice.limit)}")
    if advice.note is not None:
        parts.append(f"note: {advice.note}")
    return tuple(parts)


def format_advice(advice: Advice) -> str:
    """Return an advice in one sentence."""
    to_be = "leave it unchanged" if advice.advised is None else f"set it to {advice.advised}"
    return "; ".join((f"{to_be}: {advice.stance}", *list_advice_reasons(advice)))


_MIB = 1 << 20
_WORDS = {
    State.DRIFT: "to change",
    State.OK: "as required",
    State.FIXED: "fixed by kernel or driver",
    State.PENDING: "pending",
    State.ABSENT: "absent",
    State.UNREADABLE: "unreadable",
    State.EXCLUDED: "excluded",
}
_KINDS = {
    TargetKind.ENDPOINT: "disks",
    TargetKind.CONTROLLER: "controllers",
    TargetKind.HOST: "hosts",
    TargetKind.VECTOR: "interrupts",
}
_MOST = 16
"""The maximum number of names and ranges of a row that are all shown."""
_FEW = 8
"""The number of names and ranges that are shown if a row has more."""


class TargetRow(Protocol):
    """A row about one target."""

    @property
    def target(self) -> str: ...  # noqa: D102


R = TypeVar("R", Row, Restored)
N = TypeVar("N", bound=TargetRow)
T = TypeVar("T")


def show_differences(differences: Differences, *, unfold: bool) -> None:
    """Print the answer first, then the rows, the advice that is not met, and the skipped disks."""
    print_heading(_summarise_states(differences, unfold=unfold))
    print_line()
    show_rows(differences.rows, differences.situation.machine, unfold=unfold)
    if differences.causes:
        from hbatune.text.probe_tables import describe_cause  # few hosts have a trace

        for row in differences.rows:
            if (cause := differences.causes.get((*row.key, row.current))) is not None:
                print_line(f"{row.target}: {describe_cause(cause)}.", hang=2)
    show_advice(differences.advice, unfold=unfold)
    show_unchanged(differences)


def show_unchanged(result: Differences | ApplyResult) -> None:
    """Print the disks that no rule may change, then those on a shared array without a row."""
    from hbatune.operations.situation import list_shared_disks

    show_skipped(result.plan.left_alone)
    machine, disks = result.situation.machine, result.situation.chosen.endpoints
    if shared := list_shared_disks(result.rows, machine, disks):
        print_line(fill_message("plan", "shared", disks=format_targets(shared)), hang=2)
        print_line()


def show_rows(rows: Sequence[Row], machine: Machine, *, unfold: bool) -> None:
    """Print the rows by adapter: equal ones once, or with ``unfold`` each, even if OK or fixed."""
    remedies: dict[str, None] = {}
    for adapter, group in group_by_adapter(rows).items():
        shown_rows = group if unfold else list(filter(_is_worth_showing, group))
        fixed = [] if unfold else list(filter(_is_fixed, group))
        if not shown_rows and not fixed:
            continue
        print_heading(format_adapter(adapter, machine))
        if get_width() is None:
            _show_table(shown_rows, unfold=unfold)
        else:
            _show_groups(shown_rows, machine, unfold=unfold)
        for line, remedy in _yield_fixed_lines(fixed):
            print_line(line, hang=2)
            remedies[remedy] = None
        print_line()
    for remedy in filter(None, remedies):
        print_line(f"{remedy[0].upper()}{remedy[1:]}{'' if remedy.endswith('…') else '.'}")
    if any(remedies):
        print_line()


def show_skipped(disks: Sequence[SkippedDisk]) -> None:
    """Print the disks that no rule may change, with reason and evidence; equal ones once."""
    for targets, disk in fold_rows(disks, attrgetter("reason", "evidence")):
        reason = describe_skipped(describe_limit(disk.reason), disk.evidence)
        print_line(f"{format_targets(targets)}: {reason}", hang=2)
    if disks:
        print_line()


def describe_skipped(reason: str, evidence: Sequence[str]) -> str:
    """Return why a disk is not changed, with the evidence."""
    return f"skipped: {reason} ({', '.join(evidence) or 'no evidence'})"


def summarise_outcomes(plan: Plan, rows: Collection[Row], *, unfold: bool, worse: int = 0) -> str:
    """Return one sentence with the number of rows for each outcome; ``worse`` were kept."""
    parts = [f"{count} {outcome}" for outcome, count in sorted(count_outcomes(rows).items())]
    parts += _count_states((row for row in rows if row.outcome is None), unfold=unfold)
    parts += [f"{worse} worse than before, kept on request"] if worse else []
    return f"Profile {plan.profile}: {', '.join(parts) or 'nothing to set on this machine'}."


def _summarise_states(differences: Differences, *, unfold: bool) -> str:
    """Return one sentence with the numbers of rows by state and disks without one, and memory."""
    plan, rows = differences.plan, differences.rows
    counts, disks = _count_states(rows, unfold=unfold), differences.situation.chosen.endpoints
    if unmatched := count_settings(rows, disks)["unmatched"]:
        counts.append(f"{format_count(unmatched, 'disk')} without a rule")
    text = f"Profile {plan.profile}: {', '.join(counts) or 'nothing to set on this machine'}."
    if plan.memory.added >= _MIB:
        text += f" The requests will take {plan.memory.added / _MIB:.0f} MiB of memory."
    return text


def count_outcomes(rows: Iterable[Row | Restored]) -> dict[str, int]:
    """Return the number of rows for each outcome. Rows without an outcome are not counted."""
    return dict(Counter(str(row.outcome) for row in rows if row.outcome is not None))


def _count_states(rows: Iterable[Row], *, unfold: bool) -> list[str]:
    states = Counter(row.state for row in rows if unfold or not _is_lacking(row))
    return [f"{states[state]} {label}" for state, label in _WORDS.items() if states[state]]


def group_by_adapter(rows: Iterable[R]) -> dict[str | None, list[R]]:
    """Return the rows of each adapter, sorted by name; the key None is for several or none."""
    groups: dict[str | None, list[R]] = group_items(rows, attrgetter("adapter"))
    # Maps over several adapters and disks without an adapter come last.
    adapters = sorted(groups, key=lambda name: (name is None, natural_key(name or "")))
    return {adapter: groups[adapter] for adapter in adapters}


def fold_rows(rows: Iterable[N], content: Callable[[N], object]) -> Iterator[tuple[list[str], N]]:
    """Yield the targets whose rows have the same content, and the first of these rows."""
    for group in group_items(rows, content).values():
        yield sorted((row.target for row in group), key=natural_key), group[0]


def group_equal_rows(rows: Iterable[T], content: Callable[[T], object]) -> list[T]:
    """Return the rows with rows of equal content next to each other, in their first order."""
    return list(chain.from_iterable(group_items(rows, content).values()))


def fold_names(targets: Sequence[str], *, count: bool = True) -> tuple[str, ...]:
    """Return names, with ranges for consecutive ones; with a range also the total count."""
    pieces = tuple(shorten_names(targets))
    if len(pieces) == len(set(targets)) <= _MOST:
        return pieces
    if len(pieces) > _MOST:
        pieces = (*pieces[:_FEW], "and others")
    return (*pieces[:-1], f"{pieces[-1]} ({len(targets)})") if count else pieces


def label_targets(targets: Sequence[str], disks: Iterable[Endpoint]) -> tuple[str, ...]:
    """Return folded names, with the aliases if all disks have one: ``dm-3 (mpatha)``."""
    names, aliases = fold_names(targets), [disk.alias for disk in disks if disk.alias]
    if not targets or len(aliases) < len(targets):
        return names
    return (*names, f"({' '.join(fold_names(aliases, count=False))})")


def list_uses(endpoints: Iterable[Endpoint]) -> tuple[str, ...]:
    """Return the mount points of disks, then the volumes and pools on them, at most nine words."""
    points: set[str] = set()
    volumes: set[str] = set()
    for endpoint in endpoints:
        points.update(endpoint.mounts)
        volumes.update(endpoint.volumes or endpoint.holders)  # an old snapshot has no volumes
    names = (*sorted(points, key=natural_key), *sorted(volumes, key=natural_key))
    return names if len(names) <= _FEW else (*names[:_FEW], f"and {len(names) - _FEW} others")


def format_targets(targets: Sequence[str]) -> str:
    """Return names as text: ``sda sdb``, ``sda..sdl (12)``."""
    return " ".join(fold_names(targets))


def format_adapter(target: str | None, machine: Machine) -> str:
    """Return one line that identifies an adapter."""
    for adapter in machine.adapters:
        if adapter.target == target:
            versions = describe_adapter(None, adapter.driver_version, adapter.firmware)
            parts = (adapter.target, adapter.controller, adapter.family, *versions)
            return "  ".join(filter(None, parts))
    return "several adapters, or none" if target is None else target


def format_medium(endpoint: Endpoint) -> str:
    """Return protocol and medium of an endpoint: ``sata ssd``, ``RAID 5 volume``, ``unknown``."""
    if endpoint.protocol is model.Protocol.UNKNOWN:
        return "unknown"
    if endpoint.protocol is model.Protocol.VOLUME:
        # A disk counts as rotational unless it reports a solid medium (drivers/scsi/sd.c:
        # sd_read_block_characteristics). So `hdd` says nothing about a volume's drives.
        name = f"RAID {endpoint.raid_level} volume" if endpoint.raid_level else "RAID volume"
        return f"{name} ssd" if endpoint.medium is Medium.SSD else name
    if endpoint.medium is Medium.UNKNOWN or str(endpoint.medium) == str(endpoint.protocol):
        return str(endpoint.protocol)
    return f"{endpoint.protocol} {endpoint.medium}"


def format_selection(endpoint: Endpoint) -> str | None:
    """Return how a map selects among its paths, as in ``service-time over 1 of 2 paths``."""
    group = endpoint.active_group
    if group is None:
        return None
    paths = format_count(len(endpoint.paths), "path")
    return f"{group.selector} over {len(group.paths)} of {paths}"


def describe_adapter(
    link: model.Link | None, driver: str | Missing | None, firmware: str | Missing | None
) -> Iterator[str]:
    """Yield the link of an adapter and the versions of its driver and firmware, if known."""
    texts = {"link": link and format_link(link), "driver": driver, "firmware": firmware}
    for name, text in texts.items():
        if text and not isinstance(text, Missing):
            yield f"{name} {text}"


def format_link(link: model.Link) -> str | None:
    """Return a link's speed, with its maximum if it is higher, or None if unknown."""
    current = format_speed(link.speed, link.width)
    maximum = format_speed(link.max_speed, link.max_width)
    return f"{current} of {maximum}" if current and maximum not in (None, current) else current


def format_speed(speed: float | Missing, width: int | Missing) -> str | None:
    """Return the speed and width of a link, or None if one of them is unknown."""
    is_unknown = isinstance(speed, Missing) or isinstance(width, Missing)
    return None if is_unknown else f"{speed:g} GT/s x{width}"


def format_value(value: object) -> str:
    """Return a value as text, or a dash for None."""
    return EMPTY_CELL if value is None else str(value)


def _show_table(rows: Sequence[Row], *, unfold: bool) -> None:
    """Print the rows for a pipe, where each line must be complete."""
    get_key = attrgetter("key") if unfold else _get_row_content
    table = Table(_ROW_COLUMNS)
    for targets, row in sorted(fold_rows(rows, get_key), key=lambda item: natural_key(item[0][0])):
        table.rows.append([fold_names(targets), row.setting, *_make_cells(row)])
    show_table(table)


def _show_groups(rows: Sequence[Row], machine: Machine, *, unfold: bool) -> None:
    """Print the rows for a terminal: disks with equal rows together, each row with its reason."""
    disk_ids = {disk.id for disk in machine.endpoints}
    rows_by_disk = group_items((row for row in rows if row.id in disk_ids), attrgetter("id"))

    def get_content(disk: Endpoint) -> object:
        contents = tuple(map(_get_row_content, rows_by_disk[disk.id]))
        return disk.id if unfold else (format_medium(disk), disk.model, contents)

    listed = [disk for disk in machine.endpoints if disk.id in rows_by_disk]
    listed.sort(key=lambda disk: natural_key(disk.target))
    for disks in group_items(listed, get_content).values():
        names = " ".join(label_targets([disk.target for disk in disks], disks))
        kind = ", ".join(filter(None, (format_medium(disks[0]), disks[0].model)))
        print_line(f"{names}: {kind}", hang=4)
        group = rows_by_disk[disks[0].id]
        show_table(Table(_GROUP_COLUMNS, [_make_group_row(row.setting, [row]) for row in group]))
    others = (row for row in rows if row.id not in disk_ids)
    table = Table(_GROUP_COLUMNS)
    for group in group_items(others, attrgetter("key") if unfold else _get_shared_content).values():
        name = f"{format_targets([row.target for row in group])} {group[0].setting}"
        table.rows.append(_make_group_row(name, group))
    show_table(table)


def _make_group_row(name: str, rows: Sequence[Row]) -> list[Cell]:
    """Return the cells of rows that differ only in their targets and values."""
    _, value, state, reasons = _make_cells(rows[0])
    change = _join_values([row.current for row in rows])
    if value not in (EMPTY_CELL, change):
        change += f" → {_join_values([row.value for row in rows])}"
    return [f"  {name}", change, "" if state == State.DRIFT else state, reasons]


def _join_values(values: Sequence[object]) -> str:
    """Return the values of rows in their order, or once if all are equal: ``0, 2, ..., 15``."""
    texts = [format_value(value) for value in (values if len(set(values)) > 1 else values[:1])]
    if texts[4:]:  # too many for a line with their targets
        texts[2:-1] = ["..."]
    return ", ".join(texts)


def _make_cells(row: Row) -> tuple[str, str, str, tuple[str, ...]]:
    """Return the current value, the value to set, the state or outcome, and the reasons."""
    # In the other states no value will be written, so none is shown.
    is_written = row.state in (State.OK, State.DRIFT, State.PENDING)
    value = format_value(row.value if is_written else None)
    state = str(row.state if row.outcome is None else row.outcome)
    return format_value(row.current), value, state, _explain_row(row)


def _yield_fixed_lines(rows: Iterable[Row]) -> Iterator[tuple[str, str]]:
    """Yield for each setting and reason a line on the fixed values, and the remedy."""
    for targets, row in fold_rows(rows, attrgetter("setting", "limit")):
        reason, remedy = explain_limit(row.limit or "not known why")
        who = format_targets(targets)
        if row.setting in SETTINGS and len(targets) > 1:
            names = ", ".join(fold_names(targets, count=False))
            who = f"{len(targets)} {_KINDS[SETTINGS[row.setting].on]} ({names})"
        yield f"{who}: {row.setting} is fixed: {reason}", remedy


def _is_fixed(row: Row) -> bool:
    return row.state is State.FIXED and row.outcome is None


def _is_worth_showing(row: Row) -> bool:
    return row.state is not State.OK and not _is_lacking(row) and not _is_fixed(row)


def _is_lacking(row: Row) -> bool:
    # A rule for all adapters names settings that most of them do not have: not worth showing.
    return row.state is State.ABSENT and row.target == row.adapter


def _explain_row(row: Row) -> tuple[str, ...]:
    """Return the reasons of a row: what was read, the limit, and the rule's reason."""
    parts = [describe_limit(row.limit)]
    if row.state is not State.EXCLUDED:
        parts.append(f"{describe_limit(row.why)} ({row.source})")
    if row.errno is not None:
        parts.insert(0, os.strerror(row.errno))
    if row.found is not None:
        parts.insert(0, f"reads {row.found}")
    return tuple(filter(None, parts))
