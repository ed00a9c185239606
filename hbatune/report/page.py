"""The input data of a report, and the parts of the page that the template renders."""

from markupsafe import Markup
from msgspec import Struct

from hbatune.act.journal import Journal
from hbatune.facts.model import Machine
from hbatune.plan.rows import Plan
from hbatune.policy.library import Yardsticks
from hbatune.policy.profile import Profile
from hbatune.probe.comparison import Standing, compare_on_machine
from hbatune.probe.history import Record, list_entries
from hbatune.probe.result import ProbeResult
from hbatune.probe.sweeps import Corners, Sweep, find_corners, find_sweeps
from hbatune.text.probe_tables import describe_stale


class ReportData(Struct, frozen=True):
    """A machine with its profile and plan, the journal of changes, and the measured results.

    ``profile`` and ``plan`` are None if no profile is active or named. ``recorded`` is true if the
    machine comes from a snapshot, which contains no original values.
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
        """The latest sweep of each disk, workload and command, the latest first."""
        return find_sweeps(self.records)

    @property
    def corners(self) -> list[Corners]:
        """The latest sweeps of random and sequential I/Os by one command."""
        return find_corners(self.sweeps)

    @property
    def apply(self) -> str:
        """The command that applies the profile, or a common profile if ``profile`` is None."""
        return f"hbatune apply --profile {'oltp' if self.profile is None else self.profile.name}"

    @property
    def disk(self) -> str:
        """The disk in the commands that the page suggests."""
        disks = (endpoint.target for endpoint in self.machine.endpoints if not endpoint.map)
        return next(disks, "sda")

    def standing(self, result: ProbeResult) -> Standing | None:
        """Compare a result on this machine, or return None if its disk is missing."""
        return compare_on_machine(result, self.machine, self.profile, self.yardsticks)

    def list_stale(self, *records: Record) -> list[str]:
        """Return a sentence for each reason why one of the records is stale."""
        entries = [entry for entry in list_entries(records, self.machine) if entry.stale]
        return list(describe_stale(entries))


class PageTable(Struct, frozen=True):
    """A table of text. Columns in ``right`` contain numbers. A ``wide`` table ends in prose."""

    caption: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[int] = frozenset()
    wide: bool = False


class ShownValue(Struct, frozen=True):
    """One value in a picture: its series and sign, and its position on the axes.

    A point has ``x`` and ``y``. A mark on a single axis has only ``x``, and a bar on it extends
    from ``x`` to ``x_end``. ``sign`` distinguishes the marks of a row. The axis titles name the
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
    """A picture with its name, caption and values."""

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
    """A part of a section: name, sentences, pictures, tables. ``folded`` tables open on a click.

    The name is empty if the section's name is enough. ``paired`` places pictures and tables side by
    side if the screen is wide enough.
    """

    name: str = ""
    notes: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[PageTable, ...] = ()
    folded: tuple[PageTable, ...] = ()
    tree: tuple[Node, ...] = ()
    paired: bool = False


def note_omitted(count: int, limit: int, text: str) -> tuple[Block, ...]:
    """Return a block that notes how many of ``count`` items are beyond the limit, if any."""
    return (Block(notes=(f"{count - limit} {text}",)),) if count > limit else ()


class Howto(Struct, frozen=True):
    """The reason why a section is empty, and a command that would fill it."""

    why: str
    command: str


class PageSection(Struct, frozen=True):
    """A section of the page. Without blocks it shows the ``howto``."""

    id: str
    name: str
    blocks: tuple[Block, ...]
    howto: Howto


class Tile(Struct, frozen=True):
    """A number at the top of the page, with its meaning."""

    value: str
    what: str


class Page(Struct, frozen=True):
    """The complete report."""

    hostname: str
    made: str
    version: str
    facts: tuple[tuple[str, str], ...]
    tiles: tuple[Tile, ...]
    sections: tuple[PageSection, ...]
