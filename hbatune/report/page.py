"""The parts of the page: values only, which the template renders."""

from markupsafe import Markup
from msgspec import Struct


class PageTable(Struct, frozen=True):
    """A table of text; columns in ``right`` hold figures; a ``wide`` one ends in prose."""

    caption: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[int] = frozenset()
    wide: bool = False


class Figure(Struct, frozen=True):
    """A picture with its name and its caption."""

    name: str
    picture: Markup
    caption: str


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
