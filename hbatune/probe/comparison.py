"""Compares a result with the documents' figures, its link, and the profile's objective. Pure.

The documents' latencies are those of 4K random reads at depth 32; a result of another workload is
not held against them.
"""

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from hbatune.facts.model import Adapter, Link, Machine, Missing, Protocol, TargetKind
from hbatune.loader import Count, Figure
from hbatune.policy.library import LinkFigures, MediumFigures, RaidFigures, Yardsticks
from hbatune.policy.match import Traits, adapter_traits, matches, objective, traits
from hbatune.policy.profile import Match, Objective, Profile
from hbatune.probe.result import Pattern, ProbeResult, Subject, Workload
from hbatune.probe.selection import subjects_of

HEADROOM = (0.20, 0.40)
"""Shares of the objective that stay free: from the first on enough, beyond the second ample."""

_BLOCK, _LARGE = 4096, 1 << 20
_USUAL = 32
"""I/Os in flight up to which a p99 is held against an objective: the documents' own depth."""
_DEEPEST = 256
"""I/Os in flight up to which latencies stand beside the documents': those of D0-11's reference."""
_ENCODING = {2.5: 0.8, 5.0: 0.8}
"""Share of the bits that carry data: 8b/10b up to Gen2, 128b/130b beyond (PCI Express base)."""


class Headroom(StrEnum):
    """The headroom between a p99 and its objective (D0-9: 20 to 40 %)."""

    MISSED = "missed"
    SCANT = "scant"  # met, with less than 20 % to spare
    ENOUGH = "enough"  # 20 to 40 %
    AMPLE = "ample"  # more


class Goal(Struct, frozen=True):
    """The profile's objective and how it was met; ``spare`` is the share of it that is left."""

    p99_ms: float
    measured_ms: float
    spare: float
    headroom: Headroom
    source: str

    @property
    def met(self) -> bool:
        """Whether the p99 is within the objective."""
        return self.headroom is not Headroom.MISSED


class LinkShare(Struct, frozen=True):
    """The throughput beside its link's ceiling and a document's figure, all in GB/s.

    ``document`` is for one adapter, None where no document has figures for such a link.
    """

    adapter: str
    measured: float
    ceiling: float
    document: float | None
    source: str | None

    @property
    def used(self) -> float:
        """The share of the ceiling."""
        return self.measured / self.ceiling


class Standing(Struct, frozen=True):
    """All comparisons of one result; None or empty where there is no figure to compare with.

    ``same_depth`` says whether the result was measured at the document's depth. ``raid`` are a
    document's figures for volumes of such an adapter in such a slot, one for each RAID level: no
    attribute shows which level a volume has.
    """

    document: MediumFigures | None
    same_depth: bool
    goal: Goal | None
    links: tuple[LinkShare, ...]
    raid: tuple[RaidFigures, ...] = ()


class MixCost(Struct, frozen=True):
    """What so many percent of reads cost of the IOPS of reads alone, beside a document's figures.

    All are shares; ``cost`` is below zero where the mix did more.
    """

    reads: Count
    cost: Figure
    document: tuple[Figure, Figure]
    source: str


def mix_cost(results: Iterable[ProbeResult], yardsticks: Yardsticks) -> MixCost | None:
    """Return what a mix of 4K costs on one disk, None where none was measured or is to be trusted.

    The documents tell it of random I/O (D0-15); both runs have to be alike but for their reads.
    """
    trusted = [result for result in results if result.doubt is None and result.figures.iops > 0]
    mixes = [
        each
        for each in trusted
        if each.workload.pattern is Pattern.RANDOM_MIX and each.workload.block_size == _BLOCK
    ]
    for known in yardsticks.mix:
        for mixed in (mix for mix in mixes if mix.workload.reads == known.reads):
            alone = replace(mixed.workload, reads=100)
            for reads in (mix for mix in mixes if mix.workload == alone):
                cost = 1 - mixed.figures.iops / reads.figures.iops
                return MixCost(known.reads, cost, known.cost, known.source)
    return None


def compare_result(
    result: ProbeResult, subject: Subject, profile: Profile | None, yardsticks: Yardsticks
) -> Standing:
    """Return the comparisons of a result; without a profile there is no objective."""
    it = subject_traits(subject)
    alone = result.workload.writer is None
    comparable = alone and result.workload.pattern is Pattern.RANDOM_READ
    comparable = comparable and result.workload.block_size == _BLOCK
    comparable = comparable and result.workload.issued <= _DEEPEST
    figures = document_figures(it, yardsticks) if comparable else None
    # An objective is for the load of the profile. Deeper ones fill a queue, and wait in it.
    usual = profile is not None and result.workload.issued <= max(_USUAL, profile.probe.depth)
    wanted = objective(profile, it) if profile is not None and comparable and usual else None
    gb_per_s = result.figures.bandwidth / 1e9
    return Standing(
        document=figures,
        same_depth=figures is not None and result.workload.issued == figures.depth,
        goal=None if wanted is None else judge_objective(wanted, result.figures.p99_us / 1000),
        links=tuple(
            share
            for adapter in subject.adapters
            if (share := _share(adapter, gb_per_s, yardsticks)) is not None
        ),
        raid=raid_figures(result.workload, it, subject, yardsticks),
    )


def compare_on_machine(
    result: ProbeResult, machine: Machine, profile: Profile | None, yardsticks: Yardsticks
) -> Standing | None:
    """Return the comparisons of a result on this machine, None where its disk is gone."""
    subjects = subjects_of(machine, {result.target})
    # The kernel may have given the same name to another disk since: only the id decides.
    subject = next((each for each in subjects if each.endpoint.id == result.id), None)
    return None if subject is None else compare_result(result, subject, profile, yardsticks)


def subject_traits(subject: Subject) -> Traits:
    """Return the traits of a subject; a map takes protocol and medium from its paths."""
    # A rule about one adapter must not match a map that runs over several.
    adapter = subject.adapters[0] if len(subject.adapters) == 1 else None
    own = traits(subject.endpoint, adapter)
    if not subject.paths:
        return own
    below = traits(subject.paths[0], adapter)
    return replace(own, protocol=below.protocol, medium=below.medium)


def document_figures(it: Traits, yardsticks: Yardsticks) -> MediumFigures | None:
    """Return the documents' figures for such a medium, None where there are none."""
    return next((each for each in yardsticks.medium if matches(each.when, it)), None)


def raid_figures(
    workload: Workload, it: Traits, subject: Subject, yardsticks: Yardsticks
) -> tuple[RaidFigures, ...]:
    """Return the documents' figures for a volume's adapter and slot, if this is what they tell.

    They tell random reads and writes of 4 KiB, and sequential ones of 1 MiB.
    """
    size = _BLOCK if workload.pattern in (Pattern.RANDOM_READ, Pattern.RANDOM_WRITE) else _LARGE
    corner = workload.pattern is not Pattern.RANDOM_MIX and workload.block_size == size
    if it.protocol is not Protocol.VOLUME or not corner:
        return ()
    cards = {adapter.document for adapter in subject.adapters}
    known = (each for each in yardsticks.raid if each.card in cards)
    return tuple(each for each in known if matches(Match(link=each.when), it))


def judge_objective(wanted: Objective, measured_ms: float) -> Goal:
    """Compare a p99 in ms with an objective."""
    spare = 1 - measured_ms / wanted.p99_ms
    enough, ample = HEADROOM
    if spare < 0:
        headroom = Headroom.MISSED
    elif spare < enough:
        headroom = Headroom.SCANT
    else:
        headroom = Headroom.ENOUGH if spare <= ample else Headroom.AMPLE
    return Goal(wanted.p99_ms, measured_ms, spare, headroom, wanted.source)


def link_ceiling(link: Link) -> float | None:
    """Return the most that a link carries each way, in GB/s, None where it is unknown."""
    if isinstance(link.speed, Missing) or isinstance(link.width, Missing):
        return None
    return link.speed * _ENCODING.get(link.speed, 128 / 130) * link.width / 8


def _share(adapter: Adapter, gb_per_s: float, yardsticks: Yardsticks) -> LinkShare | None:
    ceiling = None if adapter.link is None else link_ceiling(adapter.link)
    if adapter.link is None or ceiling is None:
        return None
    found = _link_figures(adapter, yardsticks)
    return LinkShare(
        adapter=adapter.target,
        measured=gb_per_s,
        ceiling=ceiling,
        document=None if found is None else found.gb_per_s / found.adapters,
        source=None if found is None else found.source,
    )


def _link_figures(adapter: Adapter, yardsticks: Yardsticks) -> LinkFigures | None:
    it = adapter_traits(adapter, TargetKind.HOST)
    return next((e for e in yardsticks.link if matches(Match(link=e.when), it)), None)
