"""The JSON documents of ``list`` and ``diff``.

Every type of the rooms cli, fleet and text with a field ``schema`` is a JSON document. The
build generates its JSON Schema in ``hbatune/schemas``.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import TypeVar, cast

import msgspec
from msgspec import Struct

from hbatune.facts.model import Adapter, Endpoint, Machine, Missing, Vector, get_fact
from hbatune.facts.names import group_items
from hbatune.plan.advice import Advice
from hbatune.plan.rows import Plan, Row, SkippedDisk
from hbatune.settings.table import SCHEDULER, SETTINGS, Value
from hbatune.shipped import fill_message
from hbatune.text import limit_text, plan_tables
from hbatune.text.tables import Table, load_columns
from hbatune.text.terminal import print_line, show_section


class AdapterVersions(Struct, frozen=True):
    """The driver and firmware of an adapter; null if unknown."""

    target: str
    family: str
    driver: str | None
    driver_version: str | None
    firmware: str | None


class Summary(Struct, frozen=True):
    """The number of rows by state and outcome, and their machine.

    ``memory`` is the additional memory for the planned nr_requests, in bytes. ``worse`` counts the
    settings that regressed and were kept on request.
    """

    profile: str
    states: dict[str, int]
    outcomes: dict[str, int]
    memory: int
    hostname: str
    kernel: str
    boot_id: str
    adapters: tuple[AdapterVersions, ...]
    worse: int = 0


# JSON shows sentences instead of reasons. The docstrings are printed in the JSON Schemas.
class PrintedRow(Row, frozen=True):
    """One setting of one target: its current value, profile value, value to set, and reason.

    ``wanted`` is the rule's value and ``value`` the value that hbatune sets. If they differ,
    ``limit`` is the reason. ``found`` is the value read back, if it is not ``value``. If hbatune
    set a value that no rule requires any more, the row has the rule ``baseline``. The original
    value is then restored, unless the setting was changed since.
    """

    limit: str | None
    why: str


class PrintedAdvice(Advice, frozen=True):
    """A vendor's recommendation for one setting of one target.

    ``advised`` is the vendor's value, or None if the setting should stay unchanged. ``value`` is
    the nearest value that this device accepts, or None. If the two differ, ``limit`` is the reason.
    ``planned`` is the value after the plan. If it is in ``conflict`` with the advice, ``against``
    is its rule. ``note`` describes current problems of the advice. ``why``, ``source`` and ``rule``
    belong to the vendor's rule.
    """

    limit: str | None


class PrintedSkippedDisk(SkippedDisk, frozen=True):
    """A disk that no rule may change, with the reason and the evidence.

    ``unread`` is whether this is a failure: the data that identifies the disk could not be read.
    """

    reason: str


P = TypeVar("P")


def with_sentences(kind: type[P], item: Struct) -> P:
    """Return an item as JSON shows it: as a value of this type, with sentences for reasons."""
    sentences = {}
    for name in kind.__annotations__:  # the type replaces the fields with reasons
        value = getattr(item, name)
        if isinstance(value, limit_text.LimitReason):
            sentences[name] = limit_text.describe_limit(value)
    # Thousands of rows have no reason, so their JSON is the same.
    return kind(**msgspec.structs.asdict(item) | sentences) if sentences else cast(P, item)


_DECIDING = (SCHEDULER, "max_sectors_kb", "read_ahead_kb")
_MOST_DEVICES = 16


class DecidingDevice(Struct, frozen=True):
    """A device on disks with settings that count in addition to the disks' own, or instead.

    ``label`` is the name that people use. ``disks`` are the disks and maps below it, of a map its
    paths. ``holders`` are the devices on it, and ``settings`` its current values.
    """

    target: str
    label: str
    disks: tuple[str, ...]
    holders: tuple[str, ...]
    settings: dict[str, Value]


def find_deciding_devices(machine: Machine, rows: Collection[Row]) -> tuple[DecidingDevice, ...]:
    """Return the devices on the disks of these rows, with the settings that the rows are for.

    A map's scheduler counts even if no rule sets it: it replaces the schedulers of the paths.
    """
    planned = {(row.target, row.setting) for row in rows}
    planned |= {(row.target, SCHEDULER) for row in rows}
    maps, devices = {endpoint.map for endpoint in machine.endpoints}, []
    for device in machine.stacks:
        names, settings = (device.target, *device.disks), {}
        # Any other device passes I/O on, and has no scheduler.
        for setting in _DECIDING if device.target in maps else _DECIDING[1:]:
            if not planned.isdisjoint((name, setting) for name in names):
                value = SETTINGS[setting].read(device.attributes)
                if not isinstance(value, Missing):
                    settings[setting] = value
        if settings:
            uses = device.label, device.disks, device.holders
            devices.append(DecidingDevice(device.target, *uses, settings))
    return tuple(devices)


def show_stacks(machine: Machine, rows: Collection[Row]) -> None:
    """Print the devices on the disks of a plan with their settings, equal ones once."""
    devices = find_deciding_devices(machine, rows)
    if not devices:
        return
    table = Table(load_columns("stacks"))
    by_disks = len(devices) <= _MOST_DEVICES  # otherwise, equal devices on any disks share a line
    groups = group_items(devices, lambda d: (str(d.settings), d.disks if by_disks else ()))
    for group in groups.values():
        names = [device.target for device in group]
        labels = [device.label for device in group if device.label not in names]
        aliases = (f"({' '.join(plan_tables.fold_names(labels, count=False))})",) if labels else ()
        disks = plan_tables.fold_names(list({disk for device in group for disk in device.disks}))
        values = [plan_tables.format_value(group[0].settings.get(name)) for name in _DECIDING]
        table.rows.append([(*plan_tables.fold_names(names), *aliases), disks, *values])
    show_section("Devices on these disks", table)
    print_line(fill_message("plan", "stacks"), hang=2)
    print_line()


class DiffDocument(Struct, frozen=True, kw_only=True):
    """The JSON document of ``diff``.

    ``left_alone`` are unclassified disks, which no rule may change. ``advice`` are vendor
    recommendations, if the site's configuration enables them. ``stacks`` are the devices on the
    disks whose settings count in addition to the disks' own, or instead.
    """

    schema: str = "hbatune.plan/1"
    summary: Summary
    rows: tuple[PrintedRow, ...]
    left_alone: tuple[PrintedSkippedDisk, ...] = ()
    advice: tuple[PrintedAdvice, ...] = ()
    stacks: tuple[DecidingDevice, ...] = ()


class ListedEndpoint(Endpoint, frozen=True, kw_only=True):
    """An endpoint, and whether it has ``mounts`` and ``holders``."""

    mounted: bool
    held: bool


class FactsDocument(Struct, frozen=True, kw_only=True):
    """The JSON document of ``list``."""

    schema: str = "hbatune.facts/1"
    hostname: str
    kernel: str
    adapters: tuple[Adapter, ...]
    endpoints: tuple[ListedEndpoint, ...]
    vectors: tuple[Vector, ...]


def make_facts_document(machine: Machine) -> FactsDocument:
    """Return the document of ``list``: all facts, and whether each endpoint is in use."""
    endpoints = []
    for endpoint in machine.endpoints:
        facts = msgspec.structs.asdict(endpoint)
        mounted, held = bool(endpoint.mounts), bool(endpoint.holders)
        endpoints.append(ListedEndpoint(**facts, mounted=mounted, held=held))
    return FactsDocument(
        hostname=machine.hostname,
        kernel=machine.kernel,
        adapters=machine.adapters,
        endpoints=tuple(endpoints),
        vectors=machine.vectors,
    )


def make_diff_document(
    plan: Plan, rows: Sequence[Row], machine: Machine, advice: Iterable[Advice]
) -> DiffDocument:
    """Return the document of ``diff``: rows, counts and vendor recommendations."""
    summary = Summary(
        profile=plan.profile,
        states=dict(Counter(str(row.state) for row in rows)),
        outcomes=plan_tables.count_outcomes(rows),
        memory=plan.memory.added,
        hostname=machine.hostname,
        kernel=machine.kernel,
        boot_id=machine.boot_id,
        adapters=tuple(map(_get_versions, machine.adapters)),
    )
    return DiffDocument(
        summary=summary,
        rows=tuple(with_sentences(PrintedRow, row) for row in rows),
        left_alone=tuple(with_sentences(PrintedSkippedDisk, disk) for disk in plan.left_alone),
        advice=tuple(with_sentences(PrintedAdvice, item) for item in advice),
        stacks=find_deciding_devices(machine, rows),
    )


def _get_versions(adapter: Adapter) -> AdapterVersions:
    versions = map(get_fact, (adapter.driver, adapter.driver_version, adapter.firmware))
    return AdapterVersions(adapter.target, adapter.family, *versions)
