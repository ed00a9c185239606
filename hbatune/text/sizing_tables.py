"""Print the requirements of a load, the shortfall of a host, and the depth of LUNs."""

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from hbatune.policy.budget import MAX_LUN_DEPTH
from hbatune.shipped import fill_message
from hbatune.sizing.needs import LinkNeed, MediumNeed, Needs, RaidNeed, WantedLoad
from hbatune.sizing.shortfall import Answer, LunDepth, Resource, ResourceComparison, SharedArray
from hbatune.text.basic_output import format_count
from hbatune.text.tables import EMPTY_CELL, Table, load_columns
from hbatune.text.terminal import print_heading, print_line, show_section, show_table
from hbatune.text.units import format_block_size, format_digits, format_percent, format_rate

WRITE_HEAVY_READS = 50
"""Percent of reads below which a load mostly writes."""

_NEWEST = 5
"""The latest generation of links in the table; the JSON has all."""


class SizeDocument(Struct, frozen=True, kw_only=True):
    """The JSON document of `size`; parts that were not requested are null or empty.

    ``answer`` is whether the host carries the load, and ``headline`` is this as a sentence.
    ``host`` are the host's resources, ``depth`` is the maximum depth of LUNs of ``array``.
    """

    schema: str = "hbatune.size/1"
    answer: Answer | None = None
    headline: str | None = None
    needs: Needs | None
    host: tuple[ResourceComparison, ...]
    array: SharedArray | None
    depth: LunDepth | None


def show_needs(needs: Needs, *, unfold: bool) -> None:
    """Print the drives for a load; with ``unfold`` also links and the documents' RAID adapters."""
    show_section("Drives", _make_media_table(needs.media))
    if unfold:
        show_section("Links: each adapter has a share of the drives", _make_link_table(needs.links))
        show_section("Pairs of RAID adapters with SSDs, by level", _make_raid_table(needs.raid))
        show_section("SSDs that one pair can fully use, RAID 5", _make_saturation_table(needs))
    for need in needs.media:
        if need.pairs is not None and need.drawers is not None:
            pairs = f"{format_count(need.pairs, 'pair')} of adapters with a cache"
            print_line(f"The HDDs take {format_count(need.drawers, 'drawer')} on {pairs} (D4-14).")
    if not needs.mix_known:
        print_line(fill_message("sizing", "unknown-mix"))
    if needs.load.reads < WRITE_HEAVY_READS:
        print_line(fill_message("sizing", "write-heavy"))
    print_line(fill_message("sizing", "drawers" if unfold else "folded"))


def format_headline(needs: Needs, name: str, answer: Answer) -> str:
    """Return whether the host of this ``name`` carries the load, as a sentence."""
    load = f"{format_load(needs.load)}, with {format_percent(needs.headroom)} of everything free"
    return fill_message("sizing", answer, host=name, load=load)


def show_answer(headline: str, resources: Sequence[ResourceComparison]) -> None:
    """Print whether the host carries the load, and why."""
    print_heading(headline)
    if not resources:
        print_line("It has no drive, link or adapter that a document has a figure for.")
    table = Table(load_columns("size-answer"))
    for resource in resources:
        state = "unknown" if resource.enough is None else "enough" if resource.enough else "short"
        numbers = [_format_number(resource.has), _format_number(resource.needs)]
        subject = f"{resource.on}, in GB/s" if resource.what is Resource.LINK else resource.on
        table.rows.append([state, str(resource.what), *numbers, subject, resource.source])
    show_table(table)
    print_line()


def show_depth(array: SharedArray, lun_depth: LunDepth) -> None:
    """Print the maximum depth of each path to a LUN, with each step of the calculation."""
    table = Table(load_columns("size-depth"))
    hbas = format_count(array.hbas, "adapter") + f" on {format_count(array.fabrics, 'fabric')}"
    ports = format_count(array.ports, "port")
    spread = "all at once" if array.selector.spreads else "one at a time"
    table.rows.append(["paths", str(lun_depth.paths), f"{hbas}, each sees {ports}", "D2-7"])
    table.rows.append(["in use", str(lun_depth.used), f"{array.selector} uses {spread}", "D2-7"])
    if (port := lun_depth.budget.port) is not None:
        luns = format_count(array.luns, "LUN")
        why = (
            f"{port.limit} of a port / {format_count(port.hosts, 'host')} / "
            f"{format_count(port.luns, 'path')} of a host through it ({luns})"
        )
        sources = ", ".join(filter(None, ("D2-4", lun_depth.port_source)))
        table.rows.append(["port's share", str(port.depth), why, sources])
    if (lun := lun_depth.budget.lun) is not None:
        why = f"{lun.base}"
        if lun.per_data_drive:
            why += f" + {lun.per_data_drive} * {format_count(lun.data_drives, 'data drive')}"
        why += f" of {lun.known}" if lun.known else ""
        why += f" / {format_count(lun.paths, 'path')} in use"
        table.rows.append(["LUN's limit", str(lun.depth), why, "D2-5" if lun.known else "site"])
    table.rows.append(["at most", str(MAX_LUN_DEPTH), "the maximum for any budget", "D2-2"])
    cells = ["queue_depth", str(lun_depth.depth), "the lowest of these", lun_depth.source]
    table.rows.append(cells)
    show_section("Depth of each path to a LUN", table)
    text = f"A LUN then has {lun_depth.in_flight} in flight from each host at most"
    if port is not None:
        text += f", and a port {lun_depth.at_port} of {port.limit} from all hosts together"
    print_line(f"{text}.")
    if port is None:
        print_line(fill_message("sizing", "no-port-limit"))
    elif lun_depth.at_port > port.limit:
        print_line(fill_message("sizing", "overcommitted"))
    print_line(fill_message("sizing", "site"))


def format_load(load: WantedLoad) -> str:
    """Return a description of a load."""
    text = f"{format_rate(load.iops)} IOPS of {format_block_size(load.block)}, {load.reads} % reads"
    text += f", {format_digits(load.gb_per_s)} GB/s"
    return text if load.p99_ms is None else f"{text}, p99 of at most {load.p99_ms:g} ms"


def _make_media_table(media: Sequence[MediumNeed]) -> Table:
    table = Table(load_columns("size-drives"))
    for medium in media:
        count = "no figure" if medium.drives is None else str(medium.drives)
        met = EMPTY_CELL if medium.met is None else "met" if medium.met else "missed"
        cells = [medium.medium, count, str(medium.paths), _format_rate(medium)]
        p99 = EMPTY_CELL if medium.p99_ms is None else f"{medium.p99_ms:g}"
        cells += [p99, met, _describe_in_flight(medium)]
        table.rows.append([*cells, ", ".join(medium.sources) or EMPTY_CELL])
    return table


def _format_rate(need: MediumNeed) -> str:
    if need.each is None:
        return EMPTY_CELL
    each = format_rate(need.each) if need.unit == "IOPS" else format_digits(need.each)
    return f"{each} {need.unit}"


def _describe_in_flight(need: MediumNeed) -> str:
    if need.in_flight is None:
        return EMPTY_CELL
    text = f"{need.in_flight:.0f} at that p99 ({need.sources[0]})"
    return text if need.knee is None else f"{text}; knee at {need.knee[0]} to {need.knee[1]}"


def _make_link_table(links: Sequence[LinkNeed]) -> Table:
    table = Table(load_columns("size-links"))
    for link in links:
        if link.gen <= _NEWEST:
            name = f"Gen{link.gen} x{link.width}"
            table.rows.append([name, str(link.links), f"{link.each:.2f}", link.source])
    return table


def _make_raid_table(raid: Sequence[RaidNeed]) -> Table:
    table = Table(load_columns("size-pairs"))
    for need in raid:
        cells = [need.card, f"Gen{need.gen}", str(need.level), str(need.pairs)]
        cells += [format_percent(need.used / need.pairs), str(need.drawers)]
        ssds = "no RAID 6 without a cache"
        if need.advised:
            ssds = _format_ssds(need.ssds, need.more_than)
        table.rows.append([*cells, ssds, ", ".join(need.sources)])
    return table


def _make_saturation_table(needs: Needs) -> Table:
    table = Table(load_columns("size-saturation"))
    for pair in needs.saturation:
        ssds = pair.list_counts(large_blocks=needs.large_blocks)
        more_than = [name for name, count in ssds.items() if pair.is_lower_bound(count)]
        table.rows.append([pair.card, f"Gen{pair.gen}", _format_ssds(ssds, more_than), pair.source])
    return table


def _format_ssds(ssds: Mapping[str, int], more_than: Collection[str]) -> str:
    texts = []
    for name, count in ssds.items():
        texts.append(f"{'more than ' if name in more_than else ''}{count} {name}")
    return ", ".join(texts) or EMPTY_CELL


def _format_number(number: float | None) -> str:
    if number is None:
        return EMPTY_CELL
    return str(int(number)) if number == int(number) else f"{number:.1f}"
