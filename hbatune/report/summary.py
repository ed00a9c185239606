"""The complete page with a summary of the host, and the values of its pictures.

The values are also available as comma-separated values, for use in other programs.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from hbatune import __version__
from hbatune.policy.profile import ProbeSpec
from hbatune.probe import sweeps, verdict, workloads
from hbatune.render import render_template
from hbatune.report import depth_section, disk_sections, evidence_sections, sweep_sections, topology
from hbatune.report.page import Block, PageSection, ReportData, Tile
from hbatune.text.basic_output import format_count
from hbatune.text.terminal import Field, format_csv

CSV_HEAD = "section,part,picture,series,sign,x_axis,x,x_end,y_axis,y,trusted"
"""The columns: the position of a value on the page, and the fields of ``ShownValue``."""


def format_values_csv(sections: Iterable[PageSection]) -> str:
    """Return a line for each point, mark and bar in the page's pictures."""
    return format_csv(CSV_HEAD, _list_rows(sections))


def _list_rows(sections: Iterable[PageSection]) -> Iterator[tuple[Field, ...]]:
    for section in sections:
        for block in section.blocks:
            for figure in block.figures:
                for value in figure.values:
                    name_cells = (section.name, block.name, figure.name, value.series, value.sign)
                    value_cells = (value.x_axis, value.x, value.x_end, value.y_axis, value.y)
                    yield (*name_cells, *value_cells, "yes" if value.trusted else "no")


_make_sweeps = sweep_sections.make_sweep_blocks
_Maker = Callable[[ReportData], list[Block]]
_SECTIONS: tuple[tuple[str, str, _Maker], ...] = (
    ("before-after", "Before and after", evidence_sections.make_proof_blocks),
    ("changes", "Changes", evidence_sections.make_change_blocks),
    ("latency", "I/O latency", disk_sections.make_latency_blocks),
    ("depth", "Queue depth sweep", depth_section.make_depth_blocks),
    ("load", "Response time under load", sweep_sections.make_load_blocks),
    ("corners", "Peak rates (four corners)", sweep_sections.make_corner_blocks),
    ("together", "Adapter under full load", disk_sections.make_adapter_blocks),
    ("block", "Block size sweep", partial(_make_sweeps, swept=sweeps.SweptParameter.BLOCK)),
    ("mix", "Read/write mix", partial(_make_sweeps, swept=sweeps.SweptParameter.MIX)),
    ("interference", "Read latency under write load", depth_section.make_interference_blocks),
    ("search", "Autotune results", evidence_sections.make_search_blocks),
    ("adapters", "Adapters and links", topology.make_topology_blocks),
    ("interrupts", "Interrupt placement", topology.make_interrupt_blocks),
)
"""The id and the name of each section, and the function that makes it."""


def make_sections(data: ReportData) -> list[PageSection]:
    """Return the sections of the report."""
    sections = []
    for id, name, make_blocks in _SECTIONS:
        sections.append(PageSection(id, name, tuple(make_blocks(data))))
    return sections


def render_page(data: ReportData, sections: Sequence[PageSection]) -> str:
    """Return the complete report with these sections as HTML."""
    return render_template(
        "templates",
        "report.html.j2",
        machine=data.machine,
        profile=None if data.profile is None else data.profile.name,
        made=time.strftime("%Y-%m-%d %H:%M %Z"),
        version=__version__,
        tiles=list(_list_tiles(data)),
        sections=sections,
        disk=data.disk,
        unchanged=evidence_sections.explain_no_changes(data),
    )


def _list_tiles(data: ReportData) -> Iterator[Tile]:
    number, noun = format_count(len(list(evidence_sections.find_changed(data))), "setting").split()
    yield number, f"{noun} changed"
    if data.plan is not None:
        yield str(len(data.plan.drift)), "still to change"
    counts: Counter[verdict.Conclusion] = Counter()
    for _, proof in evidence_sections.find_latest_proofs(data):
        if proof.group is None and not proof.again:
            counts[proof.verdict.word] += 1
    for conclusion in verdict.Conclusion:
        if counts[conclusion]:
            number, noun = format_count(counts[conclusion], "verdict").split()
            yield number, f"{noun}: {conclusion}"
    spec = ProbeSpec() if data.profile is None else data.profile.probe
    for sweep in data.sweeps:
        # A sweep with another LUN depth or another load does not represent normal use.
        if workloads.is_like(sweep.workload, spec) and (knee := sweep.knee) is not None:
            target = sweep.results[0].target
            label = "knee of" if knee.past is not None else "no knee up to this depth:"
            yield str(knee.depth), f"{label} {target}"
            return
