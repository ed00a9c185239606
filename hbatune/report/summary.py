"""The complete page with a summary of the host, and the values of its pictures.

The values are also available as comma-separated values, for use in other programs.
"""

import time
from collections import Counter
from collections.abc import Iterator

from hbatune import __version__
from hbatune.policy.profile import ProbeSpec
from hbatune.probe.sweeps import Swept
from hbatune.probe.verdict import Conclusion
from hbatune.probe.workloads import is_like
from hbatune.report.depth_section import depth, interference
from hbatune.report.disk_sections import newest, together
from hbatune.report.evidence_sections import changes, proofs, search, set_count
from hbatune.report.evidence_sections import newest as newest_proofs
from hbatune.report.page import Page, ReportData, Tile
from hbatune.report.sweep_sections import blocks, corners, load, mixes
from hbatune.report.topology import interrupts, topology
from hbatune.text.basic_output import quantity
from hbatune.text.plan_tables import shown
from hbatune.text.terminal import Field, csv_text

HEAD = (
    *("section", "part", "picture", "series", "sign"),
    *("x_axis", "x", "x_end", "y_axis", "y", "trusted"),
)
"""The columns: the position of a value on the page, and the fields of ``ShownValue``."""


def values_csv(page: Page) -> str:
    """Return a line for each point, mark and bar in the page's pictures."""
    return csv_text(HEAD, _list_rows(page))


def _list_rows(page: Page) -> Iterator[tuple[Field, ...]]:
    for section in page.sections:
        for block in section.blocks:
            for figure in block.figures:
                for value in figure.values:
                    name_cells = (section.name, block.name, figure.name, value.series, value.sign)
                    value_cells = (value.x_axis, value.x, value.x_end, value.y_axis, value.y)
                    yield (*name_cells, *value_cells, "yes" if value.trusted else "no")


_SECTIONS = (
    *(proofs, changes, newest, depth, load, corners, together, blocks, mixes, interference, search),
    *(topology, interrupts),
)
_GIB = 1 << 30


def page(data: ReportData) -> Page:
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
    yield "Profile", shown(None if data.profile is None else data.profile.name)


def _list_tiles(data: ReportData) -> Iterator[Tile]:
    changed = set_count(data)
    number, noun = quantity(changed, "setting").split()
    yield Tile(number, f"{noun} changed")
    if data.plan is not None:
        yield Tile(str(len(data.plan.drift)), "still to change")
    single = (proof for _, proof in newest_proofs(data) if proof.group is None and not proof.again)
    counts = Counter(proof.verdict.word for proof in single)
    for conclusion in Conclusion:
        if counts[conclusion]:
            number, noun = quantity(counts[conclusion], "verdict").split()
            yield Tile(number, f"{noun}: {conclusion}")
    spec = ProbeSpec() if data.profile is None else data.profile.probe
    sweeps = (sweep for sweep in data.sweeps if sweep.swept is Swept.DEPTH)
    for sweep in sweeps:
        # A sweep with another LUN depth or another load does not represent normal use.
        if is_like(sweep.workload, spec) and (knee := sweep.knee) is not None:
            target = sweep.results[0].target
            label = "knee of" if knee.past is not None else "no knee up to this depth:"
            yield Tile(str(knee.depth), f"{label} {target}")
            return
