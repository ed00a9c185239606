"""What the page consists of: values only, which the template shows."""

from markupsafe import Markup
from msgspec import Struct


class PageTable(Struct, frozen=True):
    """A table of text; the columns in ``right`` hold figures, the last of a ``wide`` one prose."""

    caption: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[int] = frozenset()
    wide: bool = False


class Figure(Struct, frozen=True):
    """A picture with its name and what there is to say about it."""

    name: str
    picture: Markup
    caption: str


class Node(Struct, frozen=True):
    """A line of a tree, with what hangs on it."""

    name: str
    facts: tuple[str, ...] = ()
    below: tuple["Node", ...] = ()


class Block(Struct, frozen=True):
    """What belongs together: a name, sentences, pictures, tables; ``folded`` ones open on a click.

    A name may be missing where the section's own says it all. ``paired`` has pictures and tables
    beside each other where there is room.
    """

    name: str = ""
    notes: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[PageTable, ...] = ()
    folded: tuple[PageTable, ...] = ()
    tree: tuple[Node, ...] = ()
    paired: bool = False


class Howto(Struct, frozen=True):
    """Why there is nothing to show, and the command that would change that."""

    why: str
    command: str


class PageSection(Struct, frozen=True):
    """A part of the page; without blocks it says how to come by some."""

    id: str
    name: str
    blocks: tuple[Block, ...]
    howto: Howto


class Tile(Struct, frozen=True):
    """A figure that sums something up."""

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
