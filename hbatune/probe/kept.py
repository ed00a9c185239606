"""What the history keeps beside single probes: proofs, searches, all disks of an adapter at once.

Of searches and adapters not all that is known when they end: what is needed to tell and to draw
them later, in the units in which it was measured.
"""

from enum import StrEnum

from msgspec import Struct

from hbatune.act.chain import WriteResult
from hbatune.loader import Count, Figure
from hbatune.probe.exercise import Unexercised
from hbatune.probe.model import (
    Doubt,
    Figures,
    ProbeOutcome,
    ProbeResult,
    Served,
    Workload,
    find_doubt,
)
from hbatune.probe.verdict import Verdict
from hbatune.settings.setting import Value


class Proof(Struct, frozen=True):
    """The comparison of a representative with and without some settings.

    ``group`` is the one group of settings that was compared, None for all of them together;
    ``settings`` are their names. ``last`` is the newest result with the change. ``outcome`` is the
    probe and ``written`` the write that ended the comparison early, if one did; ``left_out`` says
    that there was no time for it. ``doubted`` counts the runs that broke Little's law: those with
    more in flight than issued are left out of the verdict, those with less are in it. Less is no
    doubt where nr_requests, on one of the sides, is what holds the load back. ``again``
    marks the second comparison of all of them together. ``unexercised`` are the settings of which
    the probe shows nothing, or not all.
    """

    target: str
    id: str
    group: str | None
    settings: tuple[str, ...]
    verdict: Verdict
    last: ProbeResult | None = None
    outcome: ProbeOutcome | None = None
    written: WriteResult | None = None
    left_out: bool = False
    doubted: int = 0
    again: bool = False
    unexercised: tuple[Unexercised, ...] = ()


class DepthTried(Struct, frozen=True):
    """One probe: I/Os in flight, I/Os per second, p99 in µs."""

    depth: Count
    iops: Figure
    p99_us: Figure


class SearchedDepth(Struct, frozen=True):
    """The probes of a search for a depth in the order in which they were made, and its answer.

    ``current`` is the depth that was in force; ``chance``, from 0 to 1, is how likely the word is
    true.
    """

    current: Count
    probes: tuple[DepthTried, ...]
    word: str
    depth: Count
    chance: Figure


class CandidateTried(Struct, frozen=True):
    """Values that were tried together, none at all for what was in force, and their scores.

    ``written`` are the bytes/s of a bulk writer beside its probes, None where there was none.
    """

    values: dict[str, Value]
    scores: tuple[Figure, ...]
    written: Figure | None = None


class SearchedSettings(Struct, frozen=True):
    """A tournament of candidates, the first of which was ``in_force``, and its answer.

    A score is a rate in I/Os per second, less where p99 missed the objective; with
    ``interference`` it is a reader's p99 beside a bulk writer, in µs. ``leader`` is the number of
    the candidate that was left.
    """

    candidates: tuple[CandidateTried, ...]
    in_force: dict[str, Value]
    depth: Count
    interference: bool
    word: str
    leader: Count


class Searched(Struct, frozen=True):
    """A search on one disk; ``objective_us`` is the p99 that the profile wanted at most."""

    objective_us: Figure | None = None
    depth: SearchedDepth | None = None
    settings: tuple[SearchedSettings, ...] = ()


class Bottleneck(StrEnum):
    """What holds the disks of an adapter back when all are loaded."""

    DISKS = "disks"  # they do together what they do one at a time
    LINK = "link"
    CPU = "cpu"
    ADAPTER = "adapter"  # neither the link nor the CPUs


class KeptTogether(Struct, frozen=True):
    """All disks of an adapter at once: of each disk alone only its IOPS, in the order of targets.

    ``share`` is what they do at once of the sum of what they do alone, ``ceiling`` what the link
    carries in GB/s, ``busy``, from 0 to 1, that of the CPUs involved. ``served`` is the adapter's
    driver and firmware at the time, None where it is not known.
    """

    targets: tuple[str, ...]
    workload: Workload
    figures: Figures
    alone_iops: tuple[Figure, ...]
    share: Figure
    ceiling: Figure | None
    busy: Figure
    bottleneck: Bottleneck
    served: Served | None = None

    @property
    def doubt(self) -> Doubt | None:
        """Why the figures must not be trusted, None where nothing speaks against them."""
        return find_doubt(self.workload, self.figures, disks=len(self.targets))
