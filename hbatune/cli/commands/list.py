"""`hbatune list`: list adapters and disks."""

import argparse
from collections.abc import Collection, Iterator, Sequence
from operator import attrgetter

from msgspec.structs import replace

from hbatune.act import lock, paths, rollback_record
from hbatune.cli import arguments
from hbatune.facts import names
from hbatune.facts.assembly import without_attributes
from hbatune.facts.machine import Scope, gather_machine
from hbatune.facts.model import (
    Adapter,
    Endpoint,
    Kind,
    Machine,
    Missing,
    Protocol,
    Role,
    Storage,
    Vector,
)
from hbatune.facts.names import natural_key
from hbatune.facts.targets import choose_targets
from hbatune.operations import situation
from hbatune.plan.rows import find_skipped_disks
from hbatune.policy.config import load_configuration
from hbatune.snapshot.file import load_snapshot
from hbatune.text.basic_output import format_count
from hbatune.text.documents import make_facts_document
from hbatune.text.leftovers import print_leftovers
from hbatune.text.plan_tables import (
    fold_names,
    format_link,
    format_medium,
    format_selection,
    format_value,
    show_skipped,
)
from hbatune.text.tables import EMPTY_CELL, Cell, Table, group_items, make_columns
from hbatune.text.terminal import print_heading, print_line, print_note, show_json, show_table

_ENDPOINT = make_columns(
    "id TARGET | value ADDRESS | value WHAT | value IN USE | number SIZE | "
    "value VENDOR | value MODEL | id ID"
)
_GIB = 1 << 30
_TIB = 1 << 40
_INTERRUPTS = make_columns("id INTERRUPTS | value FOR | value PLACED BY | value ON CPUS")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `list`."""
    arguments.add_targets(parser, "what to list")
    arguments.add_shared(parser, "--json", "--no-pager", "--snapshot")


def run(args: argparse.Namespace) -> int:
    """Print the adapters and endpoints."""
    if args.snapshot is not None:
        # The same document as on a live machine: `list` reads no values of settings.
        machine = without_attributes(load_snapshot(args.snapshot).machine)
    else:
        machine = _gather_facts(args.targets)
    chosen = choose_targets(machine, args.targets)
    machine = replace(
        machine, adapters=chosen.adapters, endpoints=chosen.endpoints, vectors=chosen.vectors
    )
    if args.json:
        show_json(make_facts_document(machine))
        return 0
    adapters = machine.adapters_by_target
    # A map has no adapter since it may be over several, another disk since hbatune knows none.
    endpoints = group_items(
        machine.endpoints, lambda disk: disk.adapter or (None if disk.kind is Kind.MAP else "")
    )
    vectors = group_items(machine.vectors, attrgetter("adapter"))
    targets = {*adapters, *endpoints}
    by_name = sorted(filter(None, targets), key=natural_key)
    for target in (*by_name, *(name for name in ("", None) if name in targets)):
        _show_adapter(
            adapters.get(target or ""), target, endpoints.get(target, []), vectors.get(target, [])
        )
    return 0


def _gather_facts(names: Collection[str]) -> Machine:
    """Return the facts of the named disks, or all, and report an earlier run's incomplete work."""
    stuck, files = lock.find_outstanding_claims(paths.CLAIMS), paths.Paths()
    deadline = load_configuration().act.deadline_seconds

    def gather_disks(disks: Collection[str]) -> Machine:
        # A read from a disk with a stuck write would block as well, until its deadline.
        avoid = situation.map_stuck_disks(stuck)
        return gather_machine((), Scope(disks), deadline=deadline, avoid=avoid)

    if (path := situation.find_unreadable(files)) is not None:
        print_note(f"{path} is root's to read: what an earlier run may have left is not shown")
        return gather_disks(names)
    machine, journal = situation.load_machine_journal(gather_disks, names, files)
    print_leftovers(journal, rollback_record.load(files), machine, stuck)
    return machine


def _show_adapter(
    adapter: Adapter | None, target: str | None, endpoints: list[Endpoint], vectors: list[Vector]
) -> None:
    """Print one adapter with its endpoints and interrupts; maps belong to no adapter."""
    if adapter is None:
        print_heading(
            target or ("over several adapters" if target is None else "without an adapter")
        )
    else:
        titles = (adapter.target, adapter.family, adapter.product, adapter.document)
        print_heading("  ".join(filter(None, titles)))
        if facts := "  ".join(_yield_facts(adapter)):
            print_line(facts, hang=2)
    if endpoints:
        endpoints = sorted(endpoints, key=lambda endpoint: natural_key(endpoint.target))
        show_table(Table(_ENDPOINT, list(map(_make_endpoint_row, endpoints))))
        if unclassified := tuple(find_skipped_disks(endpoints)):
            print_line()
            show_skipped(unclassified)
    if vectors:
        if endpoints:
            print_line()
        table = Table(_INTERRUPTS)
        groups = group_items(vectors, lambda vector: (str(vector.role), _find_placer(vector)))
        for (role, placer), members in groups.items():
            targets = fold_names([vector.target for vector in members])
            table.rows.append([targets, role, placer, _join_cpus(members) or EMPTY_CELL])
        show_table(table)
    print_line()


def _yield_facts(adapter: Adapter) -> Iterator[str]:
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
    if adapter.link and (link := format_link(adapter.link)):
        yield f"link {link}"
    if isinstance(adapter.driver_version, str):
        yield f"driver {adapter.driver_version}"
    if isinstance(adapter.firmware, str):
        yield f"firmware {adapter.firmware}"


def _make_endpoint_row(endpoint: Endpoint) -> list[Cell]:
    address = endpoint.address or format_value(endpoint.controller)
    uses = (*endpoint.mounts, *endpoint.holders) or EMPTY_CELL
    texts = [endpoint.vendor or EMPTY_CELL, endpoint.model or EMPTY_CELL, endpoint.id]
    size = _format_size(endpoint.size)
    return [endpoint.target, address, _describe_role(endpoint), uses, size, *texts]


def _describe_role(endpoint: Endpoint) -> Cell:
    text = format_medium(endpoint)
    if endpoint.zoned is True:
        text += ", zoned"
    # The other protocols imply it.
    if endpoint.storage is not Storage.LOCAL and endpoint.protocol in (Protocol.SAS, Protocol.NVME):
        text = f"{text}, {endpoint.storage}"
    if endpoint.kind is Kind.PATH:
        return f"{text},", "path of", format_value(endpoint.map)
    if endpoint.kind is Kind.MAP:
        if selection := format_selection(endpoint):
            text = f"{text}, {selection}"
        return f"{text},", "map of", *fold_names(endpoint.paths)
    return text


def _format_size(size: int | Missing) -> str:
    if isinstance(size, Missing):
        return EMPTY_CELL
    if size >= _TIB:
        return f"{size / _TIB:.1f} TiB"
    return f"{size / _GIB:.1f} GiB" if size >= _GIB else f"{size / (1 << 20):.0f} MiB"


def _find_placer(vector: Vector) -> str:
    if vector.role is Role.POLLED:
        return "free, never fires"
    if vector.role is not Role.DATA:
        return "free, skipped"
    if not vector.managed:
        return "free to move"
    return "kernel (managed), inferred" if vector.inferred else "kernel (managed)"


def _join_cpus(vectors: Sequence[Vector]) -> str:
    cpus: set[int] = set()
    for vector in vectors:
        cpus.update(names.find_cpus(vector.effective or "") or ())
    return names.join_cpus(cpus)
