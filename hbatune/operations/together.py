"""Probes the disks of one adapter at once, after each alone, to find what holds them back."""

from collections.abc import Sequence

from msgspec import Struct

from hbatune.facts.model import Adapter
from hbatune.operations.context import Context, Phase
from hbatune.operations.notes import RunsAhead
from hbatune.operations.probe import Probed
from hbatune.probe import run as running
from hbatune.probe.guard import with_links
from hbatune.probe.model import Failed, Figures, ProbeResult, Skipped, Subject, Workload
from hbatune.probe.selection import subjects_of
from hbatune.probe.together import TogetherResult, judge_together


class Together(Struct, frozen=True):
    """The results of all adapters, and the outcomes of those without figures."""

    results: tuple[TogetherResult, ...]
    failed: tuple[Skipped | Failed, ...] = ()


def probe_together(context: Context, found: Probed, names: Sequence[str]) -> Together:
    """Run each workload once more on all disks of an adapter at once; ``found`` is each alone.

    Disks that gave no figures alone are left out, and so is an adapter with a single one. A
    workload that writes needs each disk to be among the ``names`` that were given, and empty.
    """
    results: list[TogetherResult] = []
    failed: list[Skipped | Failed] = []
    groups = list(_groups(found))
    if groups:
        seconds = sum(running.estimate_seconds(1, workload) for _, workload, _, _ in groups)
        writes = any(workload.writes for _, workload, _, _ in groups)
        context.reporter.note(RunsAhead(len(groups), seconds, writes))
    with context.reporter.progress(Phase.PROBING, len(groups)) as advance:
        for adapter, workload, subjects, alone in groups:
            figures = running.probe_together(adapter.target, subjects, workload, with_links(names))
            advance(adapter.target)
            if isinstance(figures, Figures):
                results.append(judge_together(adapter.target, adapter.link, alone, figures))
            else:
                failed.append(figures)
    return Together(tuple(results), tuple(failed))


_Group = tuple[Adapter, Workload, Sequence[Subject], Sequence[ProbeResult]]


def _groups(found: Probed) -> list[_Group]:
    """Return for each adapter and workload the disks that were measured alone, two at least."""
    measured = [each.outcome for each in found.runs if isinstance(each.outcome, ProbeResult)]
    targets = {each.target for each in measured}
    subjects = {each.target: each for each in subjects_of(found.machine, targets)}
    by_adapter: dict[tuple[str, Workload], list[ProbeResult]] = {}
    adapters = {each.target: each for each in found.machine.adapters}
    for each in measured:
        serving = subjects[each.target].adapters
        # A map over two adapters is limited by neither alone.
        if len(serving) == 1:
            by_adapter.setdefault((serving[0].target, each.workload), []).append(each)
    return [
        (adapters[target], workload, [subjects[each.target] for each in alone], alone)
        for (target, workload), alone in by_adapter.items()
        if len(alone) > 1
    ]
