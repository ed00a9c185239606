"""`hbatune list`: list adapters with their disks and maps; equal disks share one line."""

import argparse
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from operator import attrgetter

from msgspec.structs import replace

from hbatune.act import rollback_record
from hbatune.act.paths import Paths
from hbatune.cli import arguments
from hbatune.facts import model, names
from hbatune.facts.assembly import without_attributes
from hbatune.facts.classify import name_array
from hbatune.facts.machine import Scope
from hbatune.facts.names import group_items, natural_key
from hbatune.facts.targets import choose_targets
from hbatune.operations import situation
from hbatune.plan.rows import find_skipped_disks
from hbatune.policy.config import load_configuration
from hbatune.settings.table import SETTINGS
from hbatune.snapshot.file import load_snapshot
from hbatune.text import plan_tables
from hbatune.text.basic_output import format_count
from hbatune.text.documents import make_facts_document
from hbatune.text.leftovers import print_leftovers
from hbatune.text.tables import EMPTY_CELL, Cell, Table, make_columns
from hbatune.text.terminal import print_heading, print_line, print_note, show_json, show_table

_GROUPS = make_columns(
    "number COUNT | value KIND | value MODEL | number SIZE | number DEPTH | value IN USE | id DISKS"
)
_ENDPOINT = make_columns(
    "id TARGET | value ADDRESS | value WHAT | value IN USE | number SIZE | number DEPTH | "
    "value VENDOR | value MODEL"
)
_DEPTH = SETTINGS["queue_depth"]
_GroupKey = tuple[str, str, str, tuple[str, ...]]
_GIB = 1 << 30
_TIB = 1 << 40
# Management controllers present their virtual drives over USB, and some kernels show the flash of
# the firmware as disks (drivers/mtd/mtd_blkdevs.c: add_mtd_blktrans_dev).
_FLASH = "mtdblock"
_USB_DRIVERS = ("usb-storage", "uas")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `list`."""
    arguments.add_targets(parser, "list only these, each on its own line")
    arguments.add_options(parser, "--all", "--ids", "--json", "--no-pager", "--snapshot")


def run(args: argparse.Namespace) -> int:
    """Print the adapters and endpoints."""
    if args.snapshot is not None:
        machine = load_snapshot(args.snapshot).machine
    else:
        machine = _gather_facts(args.targets)
    chosen = choose_targets(machine, args.targets)
    machine = replace(
        machine, adapters=chosen.adapters, endpoints=chosen.endpoints, vectors=chosen.vectors
    )
    if args.json:
        # The document has no values of settings.
        show_json(make_facts_document(without_attributes(machine)))
        return 0
    endpoints = machine.endpoints if args.ids else model.fold_heads(machine.endpoints)
    disks = sorted(endpoints, key=lambda endpoint: natural_key(endpoint.target))
    if args.ids:
        columns = make_columns("id TARGET | id ID")
        show_table(Table(columns, [(disk.target, disk.id) for disk in disks]))
    elif args.all or args.targets:
        _show_adapters(machine, disks, unfold=True)
    else:
        hidden = {disk.target: nouns for disk in disks if (nouns := _name_hidden_type(disk))}
        disks = [disk for disk in disks if disk.target not in hidden]
        serving = {disk.adapter for disk in disks}
        used = (a for a in machine.adapters if a.target in serving or a.driver not in _USB_DRIVERS)
        machine = replace(machine, adapters=tuple(used))
        counts = Counter(disk.kind for disk in disks)
        parts = [format_count(counts[kind], str(kind)) for kind in model.Kind if counts[kind]]
        adapters = format_count(len(machine.adapters), "adapter")
        print_line(f"{machine.hostname}: {', '.join(parts) or 'no disk'} behind {adapters}")
        print_line()
        _show_adapters(machine, disks, unfold=False)
        print_line("`hbatune list --all` shows each disk, `hbatune list --ids` the stable ids.")
        if hidden:
            parts = [format_count(n, *nouns) for nouns, n in Counter(hidden.values()).items()]
            print_line(f"Not shown: {' and '.join(parts)}.")
    return 0


def _name_hidden_type(disk: model.Endpoint) -> tuple[str, ...]:
    """Return the singular and plural of an unused disk that no rule may change, or none."""
    if disk.mounts or disk.holders:
        return ()
    is_unknown = disk.protocol is model.Protocol.UNKNOWN
    if is_unknown and (disk.removable or disk.target.startswith(_FLASH)):
        return "removable or flash medium", "removable or flash media"
    is_empty = disk.size == 0 and disk.kind is model.Kind.DISK
    return ("disk without capacity", "disks without capacity") if is_empty else ()


def _gather_facts(names: Collection[str]) -> model.Machine:
    """Return the facts of the named disks, or all, and report an earlier run's incomplete work."""
    files, act = Paths(), load_configuration().act
    means = situation.unlocked_means(files)
    if (path := situation.find_unreadable(files)) is not None:
        print_note(f"{path} is root's to read: what an earlier run may have left is not shown")
        return means.gather(_DEPTH.paths, act, Scope(names))
    machine, journal = means.gather_journal(names, _DEPTH.paths, act)
    print_leftovers(situation.Traces(journal, rollback_record.load(files), machine, means.stuck))
    return machine


def _show_adapters(
    machine: model.Machine, disks: Sequence[model.Endpoint], *, unfold: bool
) -> None:
    """Print each adapter with its disks; with ``unfold`` each disk, and the interrupts."""
    adapters = machine.adapters_by_target
    # A map has no adapter since it may be over several, another disk since hbatune knows none.
    endpoints = group_items(
        disks, lambda disk: disk.adapter or (None if disk.kind is model.Kind.MAP else "")
    )
    vectors = group_items(machine.vectors, attrgetter("adapter"))
    up = {disk.target for disk in disks if not _is_down(disk)}
    fold_maps = sum(disk.kind is model.Kind.MAP for disk in disks) > 8  # few show their paths
    for target in sorted({*adapters, *endpoints}, key=lambda t: (not t, natural_key(str(t)))):
        _show_heading(adapters.get(target or ""), target)
        group = endpoints.get(target, [])
        if unfold:
            show_table(Table(_ENDPOINT, list(map(_make_endpoint_row, group))))
        else:
            folded = group_items(group, partial(_get_group_key, up=up, fold_maps=fold_maps))
            show_table(Table(_GROUPS, [_make_group_row(*item) for item in folded.items()]))
        if unclassified := tuple(find_skipped_disks(group)):
            print_line()
            plan_tables.show_skipped(unclassified)
        if unfold and target in vectors:
            print_line()
            _show_vectors(vectors[target])
        print_line()


def _show_heading(adapter: model.Adapter | None, target: str | None) -> None:
    """Print one adapter's facts, or a title for disks without one and for maps (None)."""
    if adapter is None:
        title = "over several adapters" if target is None else "without an adapter"
        print_heading(target or title)
    else:
        titles = (adapter.target, adapter.family, adapter.product, adapter.document)
        print_heading("  ".join(filter(None, titles)))
        if facts := "  ".join(_yield_facts(adapter)):
            print_line(facts, hang=2)


def _show_vectors(vectors: Sequence[model.Vector]) -> None:
    table = Table(make_columns("id INTERRUPTS | value FOR | value PLACED BY | value ON CPUS"))
    groups = group_items(vectors, lambda vector: (str(vector.role), _find_placer(vector)))
    for (role, placer), members in groups.items():
        targets, cpus = plan_tables.fold_names([vector.target for vector in members]), set[int]()
        for vector in members:
            cpus.update(names.find_cpus(vector.effective or "") or ())
        table.rows.append([targets, role, placer, names.join_cpus(cpus) or EMPTY_CELL])
    show_table(table)


def _get_group_key(disk: model.Endpoint, up: set[str], fold_maps: bool) -> _GroupKey:
    """Return the kind, model and depth of a disk, and the paths of a map if there are few maps."""
    kind, paths = _describe_kind(disk), disk.paths
    if paths:
        kind += f", {len(up.intersection(paths))} of {format_count(len(paths), 'path')} up"
    return kind, disk.model or EMPTY_CELL, _format_depth(disk), () if fold_maps else paths


def _make_group_row(key: _GroupKey, disks: Sequence[model.Endpoint]) -> list[Cell]:
    kind, product, depth, paths = key
    sizes = sorted(disk.size for disk in disks if isinstance(disk.size, int))
    size = " to ".join(dict.fromkeys(map(_format_size, sizes[:1] + sizes[-1:]))) or EMPTY_CELL
    used = sum(bool(disk.mounts or disk.holders) for disk in disks)
    uses: Cell = f"{used} of {len(disks)}"
    if len(disks) == 1:
        uses = plan_tables.list_uses(disks) or EMPTY_CELL
    names = plan_tables.label_targets([disk.target for disk in disks], disks)
    if paths:
        names = (*names, "over", *plan_tables.fold_names(paths))
    return [str(len(disks)), kind, product, size, depth, uses, names]


def _yield_facts(adapter: model.Adapter) -> Iterator[str]:
    if adapter.hosts:
        yield " ".join(host.name for host in adapter.hosts)
    if adapter.controller:
        yield adapter.controller
    if isinstance(adapter.hw_queues, int):
        yield format_count(adapter.hw_queues, "queue")
    if takes := {host.can_queue for host in adapter.hosts if isinstance(host.can_queue, int)}:
        yield f"takes {format_count(max(takes), 'command')}"
    if adapter.numa_node is not None:
        yield f"NUMA node {adapter.numa_node}"
    yield from plan_tables.describe_adapter(adapter.link, adapter.driver_version, adapter.firmware)


def _make_endpoint_row(endpoint: model.Endpoint) -> list[Cell]:
    address = endpoint.address or plan_tables.format_value(endpoint.controller)
    texts = [endpoint.vendor or EMPTY_CELL, endpoint.model or EMPTY_CELL]
    numbers = [_format_size(endpoint.size), _format_depth(endpoint)]
    target = plan_tables.label_targets([endpoint.target], [endpoint])
    uses = plan_tables.list_uses([endpoint]) or EMPTY_CELL
    return [target, address, _describe_role(endpoint), uses, *numbers, *texts]


def _format_depth(endpoint: model.Endpoint) -> str:
    return plan_tables.format_value(_DEPTH.read_number(endpoint.attributes))


def _describe_kind(endpoint: model.Endpoint) -> str:
    text = plan_tables.format_medium(endpoint)
    if endpoint.zoned is True:
        text += ", zoned"
    # The other protocols imply it.
    is_implied = endpoint.protocol not in (model.Protocol.SAS, model.Protocol.NVME)
    if endpoint.storage is not model.Storage.LOCAL and not is_implied:
        text = f"{text}, {name_array(endpoint.model) or endpoint.storage}"
    if _is_down(endpoint):
        text = f"{text}, {endpoint.state}"
    return text if endpoint.kind is model.Kind.DISK else f"{text}, {endpoint.kind}"


def _is_down(endpoint: model.Endpoint) -> bool:
    return isinstance(endpoint.state, str) and endpoint.state not in ("running", "live")


def _describe_role(endpoint: model.Endpoint) -> Cell:
    text = _describe_kind(endpoint)
    if endpoint.kind is model.Kind.PATH:
        return f"{text} of", plan_tables.format_value(endpoint.map)
    if endpoint.kind is model.Kind.MAP:
        parts = (f"{text} of", *plan_tables.fold_names(endpoint.paths))
        selection = plan_tables.format_selection(endpoint)
        return parts if selection is None else (*parts, f"({selection})")
    return text


def _format_size(size: int | model.Missing) -> str:
    if isinstance(size, model.Missing):
        return EMPTY_CELL
    if size >= _TIB:
        return f"{size / _TIB:.1f} TiB"
    return f"{size / _GIB:.1f} GiB" if size >= _GIB else f"{size / (1 << 20):.0f} MiB"


def _find_placer(vector: model.Vector) -> str:
    if vector.role is model.Role.POLLED:
        return "free, never fires"
    if vector.role is not model.Role.DATA:
        return "free, skipped"
    if not vector.managed:
        return "free to move"
    return "kernel (managed), inferred" if vector.inferred else "kernel (managed)"
