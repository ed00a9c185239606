"""The data that a report is made from, and the parts of the page, which the template renders."""

from markupsafe import Markup
from msgspec import Struct

from hbatune.act.journal import Journal
from hbatune.facts.model import Machine
from hbatune.plan.rows import Plan
from hbatune.policy.library import Yardsticks
from hbatune.policy.profile import Profile
from hbatune.probe.comparison import Standing, compare_on_machine
from hbatune.probe.history import HistoryEntry, Record, history_entries
from hbatune.probe.result import ProbeResult
from hbatune.probe.sweeps import Corners, Sweep, find_corners, find_sweeps


class ReportData(Struct, frozen=True):
    """A machine with its profile and plan, the journal of changes, and the results measured.

    ``profile`` and ``plan`` are None where no profile is active and none was named. ``recorded``
    says whether the machine comes from a snapshot, which holds no earlier values.
    """

    machine: Machine
    profile: Profile | None
    plan: Plan | None
    journal: Journal
    records: tuple[Record, ...]
    yardsticks: Yardsticks
    recorded: bool = False

    @property
    def sweeps(self) -> list[Sweep]:
        """The newest sweeps, the newest first."""
        return find_sweeps(self.records)

    @property
    def corners(self) -> list[Corners]:
        """The newest sweeps of random and sequential I/Os that one command made."""
        return find_corners(self.sweeps)

    @property
    def apply(self) -> str:
        """The command that applies the profile, or a common one where there is none."""
        return f"hbatune apply --profile {'oltp' if self.profile is None else self.profile.name}"

    @property
    def disk(self) -> str:
        """The disk to name in commands that the page suggests."""
        return next(
            (endpoint.target for endpoint in self.machine.endpoints if not endpoint.map), "sda"
        )

    def standing(self, result: ProbeResult) -> Standing | None:
        """Return the comparisons of a result on this machine, None where its disk is gone."""
        return compare_on_machine(result, self.machine, self.profile, self.yardsticks)

    def stale(self, *records: Record) -> list[HistoryEntry]:
        """Return the stale ones of the records."""
        return [entry for entry in history_entries(records, self.machine) if entry.stale]


class PageTable(Struct, frozen=True):
    """A table of text; columns in ``right`` hold figures; a ``wide`` one ends in prose."""

    caption: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[int] = frozenset()
    wide: bool = False


class ShownValue(Struct, frozen=True):
    """One value that a picture shows: what carries it, and its place on the axes.

    A point has ``x`` and ``y``; a mark on a single axis has ``x`` alone, and a bar on it goes from
    ``x`` to ``x_end``. ``sign`` tells marks of one row from each other. The axes' titles name their
    units. ``trusted`` is false for a point that breaks Little's law.
    """

    series: str
    sign: str
    x_axis: str
    x: float
    x_end: float | None = None
    y_axis: str = ""
    y: float | None = None
    trusted: bool = True


class Figure(Struct, frozen=True):
    """A picture with its name and its caption, and the values that it shows."""

    name: str
    picture: Markup
    caption: str
    values: tuple[ShownValue, ...]


class Node(Struct, frozen=True):
    """A line of a tree, with the lines below it."""

    name: str
    facts: tuple[str, ...] = ()
    below: tuple["Node", ...] = ()


class Block(Struct, frozen=True):
    """A part of a section: name, sentences, pictures, tables; ``folded`` ones open on a click.

    The name may be empty where the section's own is enough. ``paired`` puts pictures and tables
    side by side where there is room.
    """

    name: str = ""
    notes: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[PageTable, ...] = ()
    folded: tuple[PageTable, ...] = ()
    tree: tuple[Node, ...] = ()
    paired: bool = False


class Howto(Struct, frozen=True):
    """The reason why there is nothing to show, and a command that would change that."""

    why: str
    command: str


class PageSection(Struct, frozen=True):
    """A section of the page; without blocks it shows the ``howto``."""

    id: str
    name: str
    blocks: tuple[Block, ...]
    howto: Howto


class Tile(Struct, frozen=True):
    """A number at the head of the page, with its meaning."""

    value: str
    what: str


class Page(Struct, frozen=True):
    """The whole report."""

    hostname: str
    made: str
    version: str
    facts: tuple[tuple[str, str], ...]
    tiles: tuple[Tile, ...]
    sections: tuple[PageSection, ...]
