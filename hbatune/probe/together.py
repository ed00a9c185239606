"""Where the limit is when the disks of one adapter are loaded together. Pure.

Saturation of a link, of an adapter and of the CPUs that serve it shows only then (D0, D1, D4): each
disk alone stays below all of them. So the sum of what the disks do one at a time is held against
what they do at once.
"""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from hbatune.facts.model import Link
from hbatune.loader import Figure
from hbatune.probe.comparison import link_ceiling
from hbatune.probe.history import Bottleneck, KeptTogether
from hbatune.probe.result import Doubt, Figures, ProbeResult, Workload, find_doubt

WHOLE = 0.95
"""The share of the disks' sum from which on nothing but the disks holds them back."""
LINK_FULL = 0.8
"""The share of a link's bits that data takes at most, about: the rest are the headers and the
acknowledgments of small packets (PCI Express base: transaction and data link layers)."""
CPUS_BUSY = 0.9
"""The share of the time of the CPUs involved from which on they are the limit."""


class TogetherResult(Struct, frozen=True):
    """Disks of one adapter, probed at once: the figures of all, and of each of them ``alone``.

    ``share`` is what they do at once of the sum of what they do one at a time. ``ceiling`` is what
    the adapter's link carries in GB/s, None where it is unknown. ``busy``, from 0 to 1, is that of
    the CPUs that serve the adapter's interrupts, or of fio's threads if those are busier.
    ``doubt`` is the reason not to trust the figures at once, None where there is none.
    """

    adapter: str
    targets: tuple[str, ...]
    workload: Workload
    alone: tuple[ProbeResult, ...]
    figures: Figures
    share: Figure
    ceiling: Figure | None
    busy: Figure
    bottleneck: Bottleneck
    doubt: Doubt | None = None


def kept_together(found: TogetherResult) -> KeptTogether:
    """Return what is kept of a result."""
    serving = (each for one in found.alone for each in one.served)
    return KeptTogether(
        targets=found.targets,
        workload=found.workload,
        figures=replace(found.figures, windows=()),
        alone_iops=tuple(each.figures.iops for each in found.alone),
        share=found.share,
        ceiling=found.ceiling,
        busy=found.busy,
        bottleneck=found.bottleneck,
        served=next((each for each in serving if each.adapter == found.adapter), None),
    )


def judge_together(
    adapter: str, link: Link | None, alone: Sequence[ProbeResult], figures: Figures
) -> TogetherResult:
    """Return the result of a run on all of the disks that were measured ``alone`` before."""
    share = figures.iops / sum(each.figures.iops for each in alone)
    ceiling = None if link is None else link_ceiling(link)
    threads = sum(each.workload.jobs for each in alone)
    own = figures.iops * figures.cpu_us_per_io / 1e6 / threads
    busy = max(own, figures.busy or 0.0)
    return TogetherResult(
        adapter=adapter,
        targets=tuple(each.target for each in alone),
        workload=alone[0].workload,
        alone=tuple(alone),
        figures=figures,
        share=share,
        ceiling=ceiling,
        busy=busy,
        bottleneck=find_bottleneck(share, figures.bandwidth / 1e9, ceiling, busy),
        doubt=find_doubt(alone[0].workload, figures, disks=len(alone)),
    )


def find_bottleneck(
    share: float, gb_per_s: float, ceiling: float | None, busy: float
) -> Bottleneck:
    """Return what holds the disks back.

    ``share`` is what they do at once of what they do one at a time, ``ceiling`` what the link
    carries in GB/s, and ``busy`` the share of the time that the CPUs involved were not idle.
    """
    if share >= WHOLE:
        return Bottleneck.DISKS
    if ceiling is not None and gb_per_s >= LINK_FULL * ceiling:
        return Bottleneck.LINK
    if busy >= CPUS_BUSY:
        return Bottleneck.CPU
    return Bottleneck.ADAPTER
