"""The complete page with a summary of the host, and the values of its pictures.

The values are also available as comma-separated values, for use in other programs.
"""

import time
from collections import Counter
from collections.abc import Iterator

from hbatune import __version__
from hbatune.policy.profile import ProbeSpec
from hbatune.probe.sweeps import SweptParameter
from hbatune.probe.verdict import Conclusion
from hbatune.probe.workloads import is_like
from hbatune.report import depth_section, disk_sections, evidence_sections, sweep_sections, topology
from hbatune.report.page import Page, ReportData, Tile
from hbatune.text.basic_output import format_count
from hbatune.text.plan_tables import format_value
from hbatune.text.terminal import Field, format_csv

CSV_HEAD = "section,part,picture,series,sign,x_axis,x,x_end,y_axis,y,trusted"
"""The columns: the position of a value on the page, and the fields of ``ShownValue``."""


def format_values_csv(page: Page) -> str:
    """Return a line for each point, mark and bar in the page's pictures."""
    return format_csv(CSV_HEAD, _list_rows(page))


def _list_rows(page: Page) -> Iterator[tuple[Field, ...]]:
    for section in page.sections:
        for block in section.blocks:
            for figure in block.figures:
                for value in figure.values:
                    name_cells = (section.name, block.name, figure.name, value.series, value.sign)
                    value_cells = (value.x_axis, value.x, value.x_end, value.y_axis, value.y)
                    yield (*name_cells, *value_cells, "yes" if value.trusted else "no")


_SECTIONS = (
    evidence_sections.make_proofs_section,
    evidence_sections.make_changes_section,
    disk_sections.make_latest_section,
    depth_section.make_depth_section,
    sweep_sections.make_load_section,
    sweep_sections.make_corners_section,
    disk_sections.make_together_section,
    sweep_sections.make_blocks_section,
    sweep_sections.make_mixes_section,
    depth_section.make_interference_section,
    evidence_sections.make_search_section,
    topology.make_topology_section,
    topology.make_interrupts_section,
)
_GIB = 1 << 30


def make_page(data: ReportData) -> Page:
    """Return the complete report."""
    return Page(
        hostname=data.machine.hostname,
        made=time.strftime("%Y-%m-%d %H:%M %Z"),
        version=__version__,
        facts=tuple(_list_facts(data)),
        tiles=tuple(_list_tiles(data)),
        sections=tuple(section(data) for section in _SECTIONS),
    )


def _list_facts(data: ReportData) -> Iterator[tuple[str, str]]:
    machine = data.machine
    yield "Kernel", machine.kernel
    yield "CPUs", str(machine.cpus)
    yield "Memory", f"{machine.memory / _GIB:.0f} GiB"
    yield "Adapters", str(len(machine.adapters))
    yield "Disks and paths", str(len(machine.endpoints))
    yield "Profile", format_value(None if data.profile is None else data.profile.name)


def _list_tiles(data: ReportData) -> Iterator[Tile]:
    number, noun = format_count(evidence_sections.set_count(data), "setting").split()
    yield Tile(number, f"{noun} changed")
    if data.plan is not None:
        yield Tile(str(len(data.plan.drift)), "still to change")
    proofs = [proof for _, proof in evidence_sections.find_latest_proofs(data)]
    single = [proof for proof in proofs if proof.group is None and not proof.again]
    counts = Counter(proof.verdict.word for proof in single)
    for conclusion in Conclusion:
        if counts[conclusion]:
            number, noun = format_count(counts[conclusion], "verdict").split()
            yield Tile(number, f"{noun}: {conclusion}")
    spec = ProbeSpec() if data.profile is None else data.profile.probe
    sweeps = (sweep for sweep in data.sweeps if sweep.swept is SweptParameter.DEPTH)
    for sweep in sweeps:
        # A sweep with another LUN depth or another load does not represent normal use.
        if is_like(sweep.workload, spec) and (knee := sweep.knee) is not None:
            target = sweep.results[0].target
            label = "knee of" if knee.past is not None else "no knee up to this depth:"
            yield Tile(str(knee.depth), f"{label} {target}")
            return
