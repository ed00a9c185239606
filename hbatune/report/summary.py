"""The complete page with a summary of the host."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from hbatune import __version__
from hbatune.plan.rows import State
from hbatune.policy.profile import ProbeSpec
from hbatune.probe import sweeps, verdict, workloads
from hbatune.render import render_template
from hbatune.report import disk_sections, evidence_sections, sweep_sections, topology
from hbatune.report.page import Block, PageSection, ReportData
from hbatune.shipped import find_message
from hbatune.text.basic_output import format_count
from hbatune.text.verdict_tables import MARKS, format_verdict

_MAX_NAMED = 3
"""The number of disks named in a sentence of the page's head."""


_make_sweeps = sweep_sections.make_sweep_blocks
_SECTIONS: tuple[tuple[str, str, Callable[[ReportData], list[Block]]], ...] = (
    ("before-after", "Before and after", evidence_sections.make_proof_blocks),
    ("changes", "Changes", evidence_sections.make_change_blocks),
    ("latency", "I/O latency", disk_sections.make_latency_blocks),
    ("depth", "Queue depth sweep", sweep_sections.make_depth_blocks),
    ("load", "Response time under load", sweep_sections.make_load_blocks),
    ("corners", "Peak rates (four corners)", sweep_sections.make_corner_blocks),
    ("together", "Adapter under full load", disk_sections.make_adapter_blocks),
    ("block", "Block size sweep", partial(_make_sweeps, swept=sweeps.SweptParameter.BLOCK)),
    ("mix", "Read/write mix", partial(_make_sweeps, swept=sweeps.SweptParameter.MIX)),
    ("interference", "Read latency under write load", disk_sections.make_interference_blocks),
    ("search", "Autotune results", evidence_sections.make_search_blocks),
    ("adapters", "Adapters and links", topology.make_topology_blocks),
    ("interrupts", "Interrupt placement", topology.make_interrupt_blocks),
)
"""The id and the name of each section, and the function that makes it."""


def make_sections(data: ReportData) -> list[PageSection]:
    """Return the sections of the report."""
    return [PageSection(id, name, tuple(make_blocks(data))) for id, name, make_blocks in _SECTIONS]


def render_page(data: ReportData, sections: Sequence[PageSection]) -> str:
    """Return the complete report with these sections as HTML."""
    disks = (endpoint.target for endpoint in data.machine.endpoints if not endpoint.map)
    return render_template(
        "templates",
        "report.html.j2",
        machine=data.machine,
        profile=None if data.profile is None else data.profile.name,
        made=time.strftime("%Y-%m-%d %H:%M %Z"),
        version=__version__,
        answers=list(list_answers(data)),
        tiles=list(_list_tiles(data)),
        sections=sections,
        disk=next(disks, "sda"),  # in the commands that the page suggests
        unchanged=evidence_sections.explain_no_changes(data),
    )


def list_answers(data: ReportData) -> Iterator[str]:
    """Yield three sentences: what improved, what got worse, and what to do next."""
    answers: dict[verdict.Conclusion, list[str]] = {word: [] for word in verdict.Conclusion}
    for record, proof in evidence_sections.find_latest_proofs(data):
        if proof.group is not None or proof.again:
            continue
        answer = f"{record.target} {format_verdict(proof.verdict)}"
        if record.reverted:
            answer += f" (reverted: {', '.join(record.reverted)})"
        answers[proof.verdict.word].append(answer)
    for word in (verdict.Conclusion.IMPROVED, verdict.Conclusion.REGRESSED):
        named = answers[word][:_MAX_NAMED]
        if more := len(answers[word]) - len(named):
            named.append(f"{more} more {word}")
        yield f"{'; '.join(named)}." if named else f"No comparison shows that a disk {word}."
    plan = data.plan
    if plan is None:
        yield "No profile is active: `hbatune profiles` lists them."
        return
    unreadable = sum(row.state is State.UNREADABLE for row in plan.rows)
    if plan.drift:
        settings = format_count(len(plan.drift), "setting")
        yield f"`hbatune apply --profile {plan.profile}` changes {settings}."
    elif unreadable:
        settings = format_count(unreadable, "setting")
        yield f"{settings} could not be read: `hbatune diff --profile {plan.profile}` shows why."
    else:
        yield "Every setting has the value of the profile, or is left alone."


def _list_tiles(data: ReportData) -> Iterator[tuple[str, str, str, str]]:
    """Yield numbers for the top of the page with meaning, class (or nothing) and section's id."""
    yield str(len(list(evidence_sections.find_changed(data)))), "changed since boot", "", "changes"
    if data.plan is not None:
        drift = len(data.plan.drift)
        yield str(drift), "still to change", "look" if drift else "good", "changes"
    proofs = [proof for _, proof in evidence_sections.find_latest_proofs(data) if not proof.again]
    words = Counter(proof.verdict.word for proof in proofs if proof.group is None)
    for word, count in words.items():
        yield str(count), find_message(word), MARKS[word], "before-after"
    spec = ProbeSpec() if data.profile is None else data.profile.probe
    for sweep in data.sweeps:
        # A sweep with another LUN depth or another load does not represent normal use.
        if workloads.is_like(sweep.workload, spec) and (knee := sweep.knee) is not None:
            label = "knee of" if knee.past is not None else "no knee up to this depth:"
            yield str(knee.depth), f"{label} {sweep.target}", "", "depth"
            return
