"""The input data of a report, and the parts of the page that the template renders."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from markupsafe import Markup
from msgspec import Struct, convert

from hbatune.operations.snapshot import MeasuredHost
from hbatune.probe import comparison, history
from hbatune.probe.result import ProbeResult
from hbatune.probe.sweeps import Sweep, find_corners, find_sweeps
from hbatune.shipped import load_texts
from hbatune.text.probe_tables import describe_stale


class ReportData(MeasuredHost, frozen=True, kw_only=True):
    """A host's facts and results; ``recorded`` if from a snapshot, which has no original values."""

    recorded: bool = False

    @property
    def ordered(self) -> list[history.Record]:
        """The records by time, the latest last."""
        return sorted(self.records, key=lambda record: record.time)

    @property
    def sweeps(self) -> list[Sweep]:
        """The latest sweep of each disk, workload and command, the latest first."""
        return find_sweeps(self.records)

    @property
    def corners(self) -> list[tuple[Sweep, ...]]:
        """The latest sweeps of random and sequential I/Os by one command."""
        return find_corners(self.sweeps)

    def standing(self, result: ProbeResult) -> comparison.Standing | None:
        """Compare a result on this machine, or return None if its disk is missing."""
        return comparison.compare_on_machine(result, self.machine, self.profile, self.yardsticks)

    def list_stale(self, *records: history.Record) -> list[str]:
        """Return a sentence for each reason why one of the records is stale, each once."""
        entries = [entry for entry in history.list_entries(records, self.machine) if entry.stale]
        return list(dict.fromkeys(describe_stale(entries)))


class PageTable(Struct, frozen=True):
    """A table of text. Columns in ``right`` contain numbers. A ``wide`` table ends in prose."""

    caption: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[int] = frozenset()
    wide: bool = False


def make_table(name: str, rows: Iterable[tuple[str, ...]], *heads: str) -> PageTable:
    """Return the table of this ``name`` in templates/report.toml. ``heads`` precede its heads."""
    texts = load_texts("report.toml")["tables"][name]
    return convert({**texts, "heads": [*heads, *texts["heads"]], "rows": tuple(rows)}, PageTable)


class Figure(Struct, frozen=True):
    """A picture with its name and caption."""

    name: str
    picture: Markup
    caption: str


class Node(Struct, frozen=True):
    """A line of a tree, with the lines below it."""

    name: str
    facts: tuple[str, ...] = ()
    below: tuple["Node", ...] = ()


class Block(Struct, frozen=True):
    """A part of a section. ``folded`` tables open on a click, ``paired`` parts are side by side."""

    name: str = ""
    notes: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[PageTable, ...] = ()
    folded: tuple[PageTable, ...] = ()
    tree: tuple[Node, ...] = ()
    paired: bool = False


MAX_BLOCKS = 6
"""Maximum number of disks, sweeps or adapters of a section that are drawn, the latest first."""
_Item = TypeVar("_Item")


def make_blocks(
    make: Callable[[ReportData, _Item], Block],
    data: ReportData,
    items: Sequence[_Item],
    more: str,
    limit: int = MAX_BLOCKS,
) -> list[Block]:
    """Return a block for each of the first items, and a note on the number of the others."""
    blocks = [make(data, item) for item in items[:limit]]
    if len(items) > limit:
        blocks.append(Block(notes=(f"{len(items) - limit} {more}",)))
    return blocks


class PageSection(Struct, frozen=True):
    """A section of the page. Those without blocks share a list that shows how to fill them."""

    id: str
    name: str
    blocks: tuple[Block, ...]
