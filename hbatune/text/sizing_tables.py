"""Print the requirements of a load, the shortfall of a host, and the depth of LUNs."""

from collections.abc import Sequence

from msgspec import Struct

from hbatune.policy.budget import MOST
from hbatune.sizing.needs import LinkNeed, MediumNeed, Needs, RaidNeed, WantedLoad
from hbatune.sizing.shortfall import LunDepth, Resource, ResourceComparison, SharedArray
from hbatune.text.basic_output import quantity
from hbatune.text.tables import NOTHING, Table, figure, identity, prose, state, value
from hbatune.text.terminal import heading, say, show_table
from hbatune.text.units import block, digits, percent, rate

SCHEMA = "hbatune.size/1"
MUCH_WRITING = 50
"""Percent of reads below which a load mostly writes."""

_NEWEST = 5
"""The latest generation of links in the table; the JSON has all."""


class SizeDocument(Struct, frozen=True, kw_only=True):
    """The JSON document of `size`; parts that were not requested are null or empty.

    ``host`` are the host's resources, ``depth`` is the maximum depth of LUNs of ``array``.
    """

    schema: str = SCHEMA

    needs: Needs | None
    host: tuple[ResourceComparison, ...]
    array: SharedArray | None
    depth: LunDepth | None


def show_needs(needs: Needs) -> None:
    """Print the requirements of a load."""
    say(f"Wanted: {load_text(needs.load)}; {percent(needs.headroom)} of everything stays free.")
    say()
    heading("Drives")
    show_table(_make_media_table(needs))
    say()
    heading("Links, that of each adapter with its share of the drives")
    show_table(_make_link_table([link for link in needs.links if link.gen <= _NEWEST]))
    say()
    heading("Pairs of RAID adapters with SSDs, by level")
    show_table(_make_raid_table(needs.raid))
    say()
    if not needs.mix_known:
        say(
            "No document has a figure for so many writes on drives: those of a 70/30 mix are "
            "taken. `hbatune probe mix-sweep` measures them."
        )
    if needs.load.reads < MUCH_WRITING:
        say(
            "For much writing to one or two enclosures the adapters of a pair get two links to "
            "each other (AA cables, D4-12)."
        )
    say(
        "A document's figures are those of its own drives and adapters: they say what to plan, "
        "and `hbatune probe` what there is. HDDs go behind an adapter with a cache (D4-12)."
    )


def show_host(resources: Sequence[ResourceComparison], name: str) -> None:
    """Print the resources of a host against the requirements."""
    say()
    heading(f"{name} has")
    if not resources:
        say("no drive, link or adapter that a document has a figure for.")
        return
    table = Table(
        [
            *(state("STATE"), identity("WHAT"), figure("HAS"), figure("NEEDS")),
            *(prose("OF"), value("SOURCE")),
        ]
    )
    table.rows = [
        [
            _evaluate_resource(e),
            str(e.what),
            _format_number(e.has),
            _format_number(e.needs),
            _describe_resource(e),
            e.source,
        ]
        for e in resources
    ]
    show_table(table)


def show_depth(array: SharedArray, lun_depth: LunDepth) -> None:
    """Print the maximum depth of each path to a LUN, with each step of the calculation."""
    heading("Depth of each path to a LUN")
    table = Table([identity("WHAT"), figure("IS"), prose("BECAUSE"), value("SOURCE")])
    hbas = quantity(array.hbas, "adapter") + f" on {quantity(array.fabrics, 'fabric')}"
    ports = quantity(array.ports, "port")
    spread = "all at once" if array.selector.spreads else "one at a time"
    table.rows.append(["paths", str(lun_depth.paths), f"{hbas}, each sees {ports}", "D2-7"])
    table.rows.append(["in use", str(lun_depth.used), f"{array.selector} uses {spread}", "D2-7"])
    if (port := lun_depth.budget.port) is not None:
        luns = quantity(array.luns, "LUN")
        why = (
            f"{port.limit} of a port / {quantity(port.hosts, 'host')} / "
            f"{quantity(port.luns, 'path')} of a host through it ({luns})"
        )
        sources = ", ".join(source for source in ("D2-4", lun_depth.port_source) if source)
        table.rows.append(["port's share", str(port.depth), why, sources])
    if (lun := lun_depth.budget.lun) is not None:
        drives_text = f" + {lun.per_data_drive} * {quantity(lun.data_drives, 'data drive')}"
        limit_text = f" of {lun.known}" if lun.known else ""
        total = f"{lun.base}{drives_text if lun.per_data_drive else ''}{limit_text}"
        why = f"{total} / {quantity(lun.paths, 'path')} in use"
        table.rows.append(["LUN's limit", str(lun.depth), why, "D2-5" if lun.known else "site"])
    table.rows.append(["at most", str(MOST), "whatever there is room for", "D2-2"])
    table.rows.append(["queue_depth", str(lun_depth.depth), "the least of these", lun_depth.source])
    show_table(table)
    say()
    text = f"A LUN then has {lun_depth.in_flight} in flight from each host at most"
    if port is not None:
        text += f", and a port {lun_depth.at_port} of {port.limit} from all hosts together"
    say(f"{text}.")
    if port is None:
        say("Without a port's limit (--port-limit) nothing is known of what other LUNs take.")
    elif lun_depth.at_port > port.limit:
        say("That is more than the port takes: there are more LUNs and hosts than commands for it.")
    say("A site that describes the array in [[site.array]] has `apply` follow such a budget.")


def load_text(load: WantedLoad) -> str:
    """Return a description of a load."""
    parts = [
        f"{rate(load.iops)} IOPS of {block(load.block)}, {load.reads} % reads",
        f"{digits(load.gb_per_s)} GB/s",
    ]
    if load.p99_ms is not None:
        parts.append(f"p99 of at most {load.p99_ms:g} ms")
    return ", ".join(parts)


def _make_media_table(needs: Needs) -> Table:
    table = Table(
        [
            *(identity("DRIVES"), figure("COUNT"), figure("PATHS"), figure("EACH")),
            *(figure("P99 MS"), state("P99"), prose("IN FLIGHT ON EACH"), value("SOURCE")),
        ]
    )
    table.rows = [
        [
            *(
                medium.medium,
                _format_count(medium),
                str(medium.paths),
                _format_rate(medium),
                f"{medium.p99_ms:g}",
            ),
            *(
                _format_met(medium.met),
                _describe_in_flight(medium),
                ", ".join(medium.sources) or NOTHING,
            ),
        ]
        for medium in needs.media
    ]
    return table


def _format_count(need: MediumNeed) -> str:
    return "no figure" if need.drives is None else str(need.drives)


def _format_rate(need: MediumNeed) -> str:
    if need.each is None:
        return NOTHING
    return f"{rate(need.each) if need.unit == 'IOPS' else digits(need.each)} {need.unit}"


def _format_met(met: bool | None) -> str:
    return NOTHING if met is None else "met" if met else "missed"


def _describe_in_flight(need: MediumNeed) -> str:
    if need.in_flight is None:
        return NOTHING
    text = f"{need.in_flight:.0f} at that p99 (D3-6)"
    return text if need.knee is None else f"{text}; knee at {need.knee[0]} to {need.knee[1]}"


def _make_link_table(links: Sequence[LinkNeed]) -> Table:
    table = Table([identity("LINK"), figure("COUNT"), figure("GB/S EACH"), value("SOURCE")])
    table.rows = [
        [f"Gen{e.gen} x{e.width}", str(e.links), f"{e.each:.2f}", e.source] for e in links
    ]
    return table


def _make_raid_table(raid: Sequence[RaidNeed]) -> Table:
    table = Table(
        [
            *(identity("CARD"), value("SLOT"), value("RAID"), figure("PAIRS"), figure("USES")),
            *(prose("DRIVES, ABOUT"), value("SOURCE")),
        ]
    )
    table.rows = [
        [
            *(e.card, f"Gen{e.gen}", str(e.level), str(e.pairs), percent(e.used / e.pairs)),
            *(_format_ssds(e), ", ".join(e.sources)),
        ]
        for e in raid
    ]
    return table


def _format_ssds(need: RaidNeed) -> str:
    if not need.advised:
        return "no RAID 6 without a cache"
    if not need.ssds:
        return NOTHING
    return ", ".join(f"{count} {name}" for name, count in need.ssds.items())


def _evaluate_resource(resource: ResourceComparison) -> str:
    return "unknown" if resource.enough is None else "enough" if resource.enough else "short"


def _describe_resource(resource: ResourceComparison) -> str:
    return f"{resource.on}, in GB/s" if resource.what is Resource.LINK else resource.on


def _format_number(number: float | None) -> str:
    if number is None:
        return NOTHING
    return str(int(number)) if number == int(number) else f"{number:.1f}"
