"""The sections on adapters, links and endpoints, and on the CPUs that serve interrupts."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import groupby

from hbatune.facts import names
from hbatune.facts.model import (
    Adapter,
    Attribute,
    Endpoint,
    Link,
    Machine,
    Missing,
    Role,
    Vector,
    known,
)
from hbatune.facts.names import natural_key
from hbatune.probe.comparison import link_ceiling
from hbatune.report.charts import Bar, ChartRow, Mark, Rows, rows_figure
from hbatune.report.page import Block, Figure, Howto, Node, PageSection, ReportData
from hbatune.report.svg import Axis, LegendEntry, Shape, Tick, linear
from hbatune.text.basic_output import quantity
from hbatune.text.plan_tables import medium_text, targets_text

_THIN, _THICK = 3.5, 22.0
_MARKED = 11.0
"""Pixels from row to row that a mark needs; in thinner rows a bar shows the CPU."""
_HIGH = 420.0
"""The wanted height of one interrupt map in pixels; rows become thinner for it."""

_FREE = ("s0", Shape.CIRCLE, "data, free to move")
_SIGNS = {
    (Role.DATA, False): _FREE,
    (Role.DATA, True): ("s1", Shape.SQUARE, "data, set by the kernel (managed)"),
}
_OTHER = ("s3", Shape.DIAMOND, "not for data, left alone")


def topology(data: ReportData) -> PageSection:
    """Return the section."""
    machine = data.machine
    howto = Howto("No storage adapter was found.", "hbatune list")
    if not machine.adapters and not machine.endpoints:
        return PageSection("adapters", "Adapters and links", (), howto)
    links = _links(machine.adapters)
    made = Block(tree=tuple(_tree(machine)), figures=() if links is None else (links,))
    return PageSection("adapters", "Adapters and links", (made,), howto)


def interrupts(data: ReportData) -> PageSection:
    """Return the section: a map of each adapter that has interrupts."""
    machine = data.machine
    figures = [
        _map(adapter, found, machine)
        for adapter in machine.adapters
        if (found := [vector for vector in machine.vectors if vector.adapter == adapter.target])
    ]
    howto = Howto("No interrupt of an adapter could be read.", "hbatune list")
    blocks = (Block(figures=tuple(figures)),) if figures else ()
    return PageSection("interrupts", "Which CPU serves which interrupt", blocks, howto)


def _tree(machine: Machine) -> Iterator[Node]:
    """Yield the NUMA nodes with adapters and endpoints, then maps over several adapters."""
    ordered = sorted(machine.adapters, key=_node)
    for node, adapters in groupby(ordered, key=_node):
        below = tuple(_adapter(adapter, machine) for adapter in adapters)
        yield Node("No NUMA node" if node < 0 else f"NUMA node {node}", below=below)
    alone = [endpoint for endpoint in machine.endpoints if endpoint.adapter is None]
    if alone:
        yield Node("Over several adapters", below=tuple(_endpoints(alone)))


def _node(adapter: Adapter) -> int:
    return -1 if adapter.numa_node is None else adapter.numa_node


def _adapter(adapter: Adapter, machine: Machine) -> Node:
    found = [endpoint for endpoint in machine.endpoints if endpoint.adapter == adapter.target]
    name = " ".join(filter(None, (adapter.target, adapter.family, adapter.product)))
    return Node(name, tuple(_facts(adapter)), tuple(_endpoints(found)))


def _facts(adapter: Adapter) -> Iterator[str]:
    if adapter.link is not None:
        yield _link(adapter.link)
    if isinstance(adapter.hw_queues, int):
        yield quantity(adapter.hw_queues, "hardware queue")
    for label, fact in (("driver", adapter.driver_version), ("firmware", adapter.firmware)):
        if (value := known(fact)) is not None:
            yield f"{label} {value}"


def _link(link: Link) -> str:
    if isinstance(link.speed, Missing) or isinstance(link.width, Missing):
        return "link not readable"
    now = f"link {link.speed:g} GT/s x{link.width}"
    if isinstance(link.max_speed, Missing) or isinstance(link.max_width, Missing):
        return now
    if (link.speed, link.width) == (link.max_speed, link.max_width):
        return f"{now}, as fast as it can"
    return f"{now} where {link.max_speed:g} GT/s x{link.max_width} can be"


def _endpoints(endpoints: Sequence[Endpoint]) -> Iterator[Node]:
    """Yield one node for each group of equal endpoints."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for endpoint in endpoints:
        model = " ".join(filter(None, (endpoint.vendor, endpoint.model, endpoint.revision)))
        alike.setdefault((medium_text(endpoint), str(endpoint.kind), model), []).append(
            endpoint.target
        )
    for facts, targets in alike.items():
        yield Node(targets_text(sorted(targets, key=natural_key)), tuple(filter(None, facts)))


def _links(adapters: Sequence[Adapter]) -> Figure | None:
    rows, values = [], []
    for adapter in adapters:
        link = adapter.link
        now = None if link is None else link_ceiling(link)
        if link is None or now is None:
            continue
        most = link_ceiling(Link(link.max_speed, link.max_width, link.max_speed, link.max_width))
        bars = (*(() if most is None else (Bar(0, most, "room", 14),)), Bar(0, now, "s0", 8))
        values += [now, most or now]
        rows.append(ChartRow(adapter.target, _link(link).split(" where")[0].split(",")[0], bars))
    if not rows:
        return None
    name = "What the PCI links carry"
    keys = (
        LegendEntry("as it runs", "s0", None),
        LegendEntry("as fast as the card can", "room", None),
    )
    axis = linear("GB/s each way", values)
    caption = (
        "What a link carries at most after its encoding; packet headers take a further share. "
        "Where the outline goes beyond the bar, the link runs below what the card can."
    )
    return rows_figure(Rows(name, axis, tuple(rows), keys, pitch=44), caption)


def _map(adapter: Adapter, vectors: Sequence[Vector], machine: Machine) -> Figure:
    pitch = max(_THIN, min(_THICK, _HIGH / len(vectors)))
    # With CPUs offline the numbers have gaps, and the last one is beyond their count.
    last = max((machine.cpus - 1, *machine.processors.online))
    near = machine.local_cpus.get(adapter.target, ())
    partial = 0 < len(near) < machine.cpus
    signs = list(dict.fromkeys(_sign(vector) for vector in vectors))
    marked = pitch >= _MARKED
    keys = [LegendEntry(text, style, shape if marked else None) for style, shape, text in signs]
    keys.append(LegendEntry("may be served there", "allowed", None))
    if partial:
        keys.append(LegendEntry("CPUs near the adapter", "band", None))
    name = f"Interrupts of {adapter.target} ({adapter.family})"
    chart = Rows(
        name,
        _cpus(last),
        tuple(_row(vector, pitch) for vector in vectors),
        tuple(keys),
        pitch=pitch,
        bands=tuple(_stretches(near)) if partial else (),
    )
    caption = "Each row is an interrupt vector; its sign is at the CPU that serves it now."
    if machine.processors.isolated:
        caption += f" Isolated CPUs: {names.join_cpus(machine.processors.isolated)}."
    return rows_figure(chart, caption)


def _cpus(last: int) -> Axis:
    """Return an axis on which each CPU has a width of one."""
    ticks = linear("", [max(last, 1)], count=8, whole=True).ticks
    fits = tuple(Tick(tick.value, f"{tick.value:.0f}") for tick in ticks if tick.value <= last)
    return Axis("CPU", -0.5, last + 0.5, fits)


def _row(vector: Vector, pitch: float) -> ChartRow:
    style, shape, _ = _sign(vector)
    allowed = _parsed(vector.affinity.text) if isinstance(vector.affinity, Attribute) else ()
    serving = _parsed(vector.effective or "")
    thick = pitch - 6 if pitch >= _MARKED else pitch - 1
    bars = [Bar(low, high, "allowed", thick) for low, high in _stretches(allowed)]
    if pitch < _MARKED:
        bars += [Bar(low, high, style, thick) for low, high in _stretches(serving)]
        serving = ()
    marks = tuple(Mark(cpu, shape, style) for cpu in serving)
    return ChartRow(f"{vector.irq} {' '.join(vector.names)}".strip(), "", tuple(bars), marks)


def _sign(vector: Vector) -> tuple[str, Shape, str]:
    return _SIGNS.get((vector.role, vector.managed), _OTHER)


def _parsed(text: str) -> tuple[int, ...]:
    with suppress(ValueError):
        return names.parse_cpus(text)
    return ()


def _stretches(cpus: Sequence[int]) -> Iterator[tuple[float, float]]:
    """Yield the ends of each unbroken run of CPUs on the axis."""
    for _, run in groupby(enumerate(sorted(cpus)), key=lambda pair: pair[1] - pair[0]):
        found = [cpu for _, cpu in run]
        yield found[0] - 0.5, found[-1] + 0.5
