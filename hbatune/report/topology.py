"""The sections on adapters, links and endpoints, and on the CPUs that serve interrupts."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter

from msgspec.structs import replace

from hbatune.facts import model, names
from hbatune.probe.comparison import compute_link_ceiling
from hbatune.report.charts import Bar, ChartRow, Mark, draw_rows, load_keys
from hbatune.report.page import Block, Figure, Node, ReportData
from hbatune.report.svg import Axis, LegendEntry, Tick, make_linear_axis
from hbatune.text import plan_tables
from hbatune.text.basic_output import format_count

_THIN, _THICK = 3.5, 22.0
_MARKED = 11.0
"""Minimum row height for a mark in pixels. In thinner rows a bar shows the CPU."""
_HIGH = 420.0
"""The target height of one interrupt map in pixels. Rows become thinner to fit."""

_FREE, _MANAGED, _OTHER = load_keys("interrupts")


def make_topology_blocks(data: ReportData) -> list[Block]:
    """Return the section on adapters, links and endpoints."""
    machine = data.machine
    if not machine.adapters and not machine.endpoints:
        return []
    links = _draw_links(machine.adapters)
    return [Block(tree=tuple(_list_nodes(machine)), figures=() if links is None else (links,))]


def make_interrupt_blocks(data: ReportData) -> list[Block]:
    """Return the section on interrupts: a map of each adapter that has any."""
    figures, vectors_by_adapter = [], names.group_items(data.machine.vectors, attrgetter("adapter"))
    for adapter in data.machine.adapters:
        if vectors := vectors_by_adapter.get(adapter.target):
            figures.append(_draw_interrupts(adapter, vectors, data.machine))
    return [Block(figures=tuple(figures))] if figures else []


def _list_nodes(machine: model.Machine) -> Iterator[Node]:
    """Yield the NUMA nodes with adapters, disks without an adapter, and maps of several."""
    for node, adapters in groupby(sorted(machine.adapters, key=_get_node), key=_get_node):
        below = tuple(_make_adapter_node(adapter, machine) for adapter in adapters)
        yield Node("No NUMA node" if node < 0 else f"NUMA node {node}", below=below)
    unassigned = [endpoint for endpoint in machine.endpoints if endpoint.adapter is None]
    by_kind = names.group_items(unassigned, lambda endpoint: endpoint.kind is model.Kind.MAP)
    for is_map, title in ((False, "Without an adapter"), (True, "Over several adapters")):
        if is_map in by_kind:
            yield Node(title, below=tuple(_group_endpoints(by_kind[is_map])))


def _get_node(adapter: model.Adapter) -> int:
    return -1 if adapter.numa_node is None else adapter.numa_node


def _make_adapter_node(adapter: model.Adapter, machine: model.Machine) -> Node:
    endpoints = [endpoint for endpoint in machine.endpoints if endpoint.adapter == adapter.target]
    name = " ".join(filter(None, (adapter.target, adapter.family, adapter.product)))
    return Node(name, tuple(_list_facts(adapter)), tuple(_group_endpoints(endpoints)))


def _list_facts(adapter: model.Adapter) -> Iterator[str]:
    if adapter.link is not None:
        yield f"link {plan_tables.format_link(adapter.link) or 'not readable'}"
    if isinstance(adapter.hw_queues, int):
        yield format_count(adapter.hw_queues, "hardware queue")
    yield from plan_tables.describe_adapter(None, adapter.driver_version, adapter.firmware)


def _group_endpoints(endpoints: Sequence[model.Endpoint]) -> Iterator[Node]:
    """Yield one node for each group of equal endpoints."""

    def list_texts(endpoint: model.Endpoint) -> tuple[str, ...]:
        product = " ".join(filter(None, (endpoint.vendor, endpoint.model, endpoint.revision)))
        medium, kind = plan_tables.format_medium(endpoint), str(endpoint.kind)
        texts = (medium, kind, product, plan_tables.format_selection(endpoint))
        return tuple(filter(None, texts))

    for group in names.group_items(endpoints, list_texts).values():
        labels = plan_tables.label_targets([disk.target for disk in group], group)
        uses = plan_tables.list_uses(group)
        use_texts = (f"used by {' '.join(uses)}",) if uses else ()
        yield Node(" ".join(labels), (*list_texts(group[0]), *use_texts))


def _draw_links(adapters: Sequence[model.Adapter]) -> Figure | None:
    rows = []
    for adapter in adapters:
        link = adapter.link
        current = None if link is None else compute_link_ceiling(link)
        if link is None or current is None:
            continue
        maximum = compute_link_ceiling(replace(link, speed=link.max_speed, width=link.max_width))
        bars = [] if maximum is None else [Bar(0, maximum, "room", 14)]
        bars.append(Bar(0, current, "s0", 8))
        rows.append(ChartRow(adapter.target, f"link {plan_tables.format_link(link)}", tuple(bars)))
    return draw_rows("links", rows, load_keys("links")) if rows else None


def _draw_interrupts(
    adapter: model.Adapter, vectors: Sequence[model.Vector], machine: model.Machine
) -> Figure:
    pitch = max(_THIN, min(_THICK, _HIGH / len(vectors)))
    # Offline CPUs leave gaps in the numbers, so the last number can exceed the count.
    last = max((machine.cpus - 1, *machine.processors.online))
    near = machine.local_cpus.get(adapter.target, ())
    partial = 0 < len(near) < machine.cpus
    signs = dict.fromkeys(map(_choose_sign, vectors))
    marked = pitch >= _MARKED
    keys = [sign if marked else replace(sign, shape=None) for sign in signs]
    keys.append(LegendEntry("may be served there", "allowed"))
    if partial:
        keys.append(LegendEntry("CPUs near the adapter", "band"))
    isolated = machine.processors.isolated
    ticks = make_linear_axis("", [max(last, 1)], count=8, integral=True).ticks
    fits = tuple(Tick(tick.value, f"{tick.value:.0f}") for tick in ticks if tick.value <= last)
    return draw_rows(
        "interrupts",
        [_make_row(vector, pitch) for vector in vectors],
        keys,
        Axis("CPU", -0.5, last + 0.5, fits),  # each CPU has a width of one
        pitch=pitch,
        bands=tuple(_find_stretches(near)) if partial else (),
        notes=["isolated"] if isolated else [],
        adapter=adapter.target,
        family=adapter.family,
        isolated=names.join_cpus(isolated),
    )


def _make_row(vector: model.Vector, pitch: float) -> ChartRow:
    sign = _choose_sign(vector)
    allowed = vector.affinity.text if isinstance(vector.affinity, model.Attribute) else ""
    serving = names.find_cpus(vector.effective or "") or ()
    bars, marks = [], []
    for low, high in _find_stretches(names.find_cpus(allowed) or ()):
        bars.append(Bar(low, high, "allowed", pitch - 6 if pitch >= _MARKED else pitch - 1))
    if pitch >= _MARKED:
        marks = [Mark(cpu, sign) for cpu in serving]
    else:
        bars += [Bar(low, high, sign.style, pitch - 1) for low, high in _find_stretches(serving)]
    name = f"{vector.irq} {' '.join(vector.names)}".strip()
    return ChartRow(name, "", tuple(bars), tuple(marks))


def _choose_sign(vector: model.Vector) -> LegendEntry:
    if vector.role is not model.Role.DATA:
        return _OTHER
    return _MANAGED if vector.managed else _FREE


def _find_stretches(cpus: Sequence[int]) -> Iterator[tuple[float, float]]:
    """Yield the ends of each unbroken run of CPUs on the axis."""
    for _, run in groupby(enumerate(sorted(cpus)), key=lambda pair: pair[1] - pair[0]):
        stretch = list(run)
        yield stretch[0][1] - 0.5, stretch[-1][1] + 0.5
