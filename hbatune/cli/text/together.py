"""Text on disks of one adapter that were probed at once: what holds them back, and the figures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hbatune.cli.text.probes import doubt_text, why_not
from hbatune.cli.text.quantity import quantity
from hbatune.cli.text.units import brief, digits, percent, rate
from hbatune.probe.kept import Bottleneck, KeptTogether

if TYPE_CHECKING:
    # The report tells what was measured, and measures nothing.
    from hbatune.operations.together import Together
    from hbatune.probe.together import TogetherResult

NO_TWO = "no adapter has two of these disks with figures, so that none were probed together"


def together_lines(found: Together) -> Iterator[str]:
    """Yield a line for each run on the disks of an adapter, or why there is none."""
    for each in found.results:
        yield f"{each.adapter}: {_figures(each)}: {bottleneck_text(each)}."
        if each.doubt is not None:
            yield f"{each.adapter}: that is {doubt_text(each)}."
    for failed in found.failed:
        yield f"{failed.target}: not probed together: {why_not(failed)}."
    if not found.results and not found.failed:
        yield f"Not probed together: {NO_TWO}."


def _figures(found: TogetherResult) -> str:
    alone = sum(each.figures.iops for each in found.alone)
    gb_per_s = found.figures.bandwidth / 1e9
    return (
        f"{quantity(len(found.targets), 'disk')} at once do {rate(found.figures.iops)} IOPS "
        f"({digits(gb_per_s)} GB/s), {percent(found.share)} of the {rate(alone)} that they do one "
        f"at a time ({brief(found.workload)} on each)"
    )


def bottleneck_text(found: TogetherResult | KeptTogether) -> str:
    """Return what holds the disks of an adapter back, with the figure that shows it."""
    match found.bottleneck:
        case Bottleneck.DISKS:
            return "the disks are the limit, and the adapter carries them all"
        case Bottleneck.LINK:
            assert found.ceiling is not None
            used = percent(found.figures.bandwidth / 1e9 / found.ceiling)
            return (
                f"the link is the limit: {used} of the {digits(found.ceiling)} GB/s that it "
                "carries as it runs now"
            )
        case Bottleneck.CPU:
            return (
                "the CPUs are the limit: those that serve its interrupts, or fio's own, are busy "
                f"{percent(found.busy)} of the time"
            )
        case Bottleneck.ADAPTER:
            return "the adapter is the limit: neither its link nor the CPUs are full"
