"""Find the bottleneck when the disks of one adapter are loaded in parallel. Pure.

Saturation of a link, an adapter and the CPUs that serve it shows only then (D0, D1, D4): a single
disk stays below all of them. So the parallel rate of the disks is compared with the sum of their
single rates.
"""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import asdict

from hbatune.facts.model import Link
from hbatune.loader import Figure
from hbatune.probe.comparison import compute_link_ceiling
from hbatune.probe.history import Bottleneck, KeptTogether
from hbatune.probe.result import Doubt, Figures, ProbeResult, Workload, find_doubt

DISK_BOUND_FRACTION = 0.95
"""The fraction of the disks' sum at or above which only the disks are the bottleneck."""
LINK_FULL_FRACTION = 0.8
"""The approximate maximum fraction of a link's bits for data. The others are headers and
acknowledgments of small packets (PCI Express base: transaction and data link layers)."""
CPUS_BUSY_FRACTION = 0.9
"""The utilisation of the CPUs involved at or above which they are the bottleneck."""


class TogetherResult(Struct, frozen=True):
    """Disks of one adapter, probed in parallel: the figures of all, and single results (``alone``).

    ``share`` is the parallel rate as a fraction of the sum of the single rates. ``ceiling`` is the
    throughput of the adapter's link in GB/s, or None if unknown. ``busy``, from 0 to 1, is the
    utilisation of the CPUs that serve the adapter's interrupts, or of fio's threads if these are
    busier. ``doubt`` is the reason not to trust the parallel figures, or None.
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


def make_kept_together(measured: TogetherResult) -> KeptTogether:
    """Return the stored part of a result."""
    fields = asdict(measured) | {
        "alone_iops": tuple(result.figures.iops for result in measured.alone),
        # The adapter is the only one that serves these disks.
        "served": next(iter(measured.alone[0].served), None),
    }
    return KeptTogether(**{name: fields[name] for name in KeptTogether.__struct_fields__})


def evaluate_together(
    adapter: str, link: Link | None, singles: Sequence[ProbeResult], figures: Figures
) -> TogetherResult:
    """Return the result of a parallel run on all disks of ``singles``, their single results."""
    share = figures.iops / sum(single.figures.iops for single in singles)
    threads = sum(single.workload.jobs for single in singles)
    ceiling = None if link is None else compute_link_ceiling(link)
    thread_busy = figures.iops * figures.cpu_us_per_io / 1e6 / threads
    busy = max(thread_busy, figures.busy or 0.0)
    return TogetherResult(
        adapter=adapter,
        targets=tuple(single.target for single in singles),
        workload=singles[0].workload,
        alone=tuple(singles),
        figures=figures,
        share=share,
        ceiling=ceiling,
        busy=busy,
        bottleneck=find_bottleneck(share, figures.bandwidth / 1e9, ceiling, busy),
        doubt=find_doubt(singles[0].workload, figures, disks=len(singles)),
    )


def find_bottleneck(
    share: float, gb_per_s: float, ceiling: float | None, busy: float
) -> Bottleneck:
    """Return the bottleneck; the parameters are as in ``TogetherResult``."""
    if share >= DISK_BOUND_FRACTION:
        return Bottleneck.DISKS
    if ceiling is not None and gb_per_s >= LINK_FULL_FRACTION * ceiling:
        return Bottleneck.LINK
    if busy >= CPUS_BUSY_FRACTION:
        return Bottleneck.CPU
    return Bottleneck.ADAPTER
