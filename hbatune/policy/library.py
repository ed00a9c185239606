"""Find profiles and their tables, check them, and assemble each profile.

The shipped profiles as the build has compiled them: checked, and fast to load.

Loading them is 13 times faster than parsing, which takes 11 of the 85 ms of a diff. A build
checks the
shipped files and puts the result beside this module; a checkout has none, and parses. What was
compiled counts only for files with exactly the text that it was compiled from, and for the same
version of hbatune: otherwise it is as if there were none. A site's own files are always parsed.

Finds profiles and the tables that rules refer to, and assembles each profile.

A profile is made of its file, its includes and the site's own rules. A site's
``profiles/NAME.toml`` takes the place of the shipped ``NAME.toml``, and may include the one whose
place it takes.

The shipped tables are the sources (the documents' recommendations and the kernel's facts, by id),
the LUN limits of each make of shared array, and the measurements of the documents, to compare
results with.
"""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Raw, Struct

from hbatune import __version__
from hbatune.facts.names import matches_glob
from hbatune.policy.profile import (
    NAME,
    LinkMatch,
    Listed,
    Match,
    Origin,
    Part,
    ProbeSpec,
    Profile,
    Rule,
    Source,
    Text,
    Tolerance,
)
from hbatune.policy.toml_files import (
    ROOT,
    PolicyError,
    TomlFile,
    nearest,
    quoted,
    read_text,
    read_toml,
)
from hbatune.shipped import shipped

COMPILED_FILE = Path(__file__).resolve().parent / "compiled.msgpack"


class CompiledProfiles(Struct, frozen=True):
    """The shipped files of rules, compiled: each part and all sources, encoded, and the ``texts``.

    ``parts`` are by the file's name without its suffix, ``texts`` by the name with it.
    """

    version: str
    texts: Mapping[str, str]
    parts: Mapping[str, Raw]
    sources: Raw

    def part(self, path: Path, text: str) -> Part | None:
        """Return the part that was compiled of a file with this text, None if there is none."""
        if path.stem not in self.parts or self.texts[path.name] != text:
            return None
        return msgspec.msgpack.decode(self.parts[path.stem], type=Part).placed(path)

    def all_sources(self) -> Mapping[str, Source]:
        """Return the sources that parts may cite, by their ids."""
        return msgspec.msgpack.decode(self.sources, type=dict[str, Source])


@cache
def load_compiled(sources: Path) -> CompiledProfiles | None:
    """Return what was compiled for rules that cite this file of sources, None if nothing was."""
    try:
        found = msgspec.msgpack.decode(COMPILED_FILE.read_bytes(), type=CompiledProfiles)
        same = found.version == __version__ and found.texts.get(sources.name) == sources.read_text()
    except (OSError, ValueError):  # as msgspec.DecodeError and UnicodeDecodeError are
        return None
    return found if same else None


SOURCES, ARRAYS, YARDSTICKS, SIZING = FILES = (
    *("sources.toml", "arrays.toml"),
    *("yardsticks.toml", "sizing.toml"),
)


@cache  # shipped files change only together with the code
def load_sources(shipped: Path) -> Mapping[str, Source]:
    """Return every shipped source by its id, such as ``D0-1`` or ``K-nr-requests``.

    Raises ``PolicyError`` if one cites a document that the file does not name.
    """
    if (ready := load_compiled(shipped / SOURCES)) is not None:
        return ready.all_sources()
    from hbatune.policy.schema import SourcesFile, decode  # only where there is something to parse

    file = read_toml(shipped / SOURCES)
    table = decode(file, SourcesFile)
    sources = {}
    for name, entry in table.source.items():
        document = table.document.get(entry.document)
        if document is None:
            raise PolicyError(
                f"cites document {entry.document}, which has no table",
                file=file.path,
                place=f"source {name}",
                hint=nearest(entry.document, table.document),
            )
        sources[name] = Source(name, entry.document, document.title, entry.section, entry.says)
    return sources


Commands = Annotated[int, Meta(ge=1, le=65536)]


class ArrayModel(Struct, frozen=True, forbid_unknown_fields=True):
    """One make of array: ``lun_depth`` commands for each LUN, and more for each data drive.

    ``port_limit`` are the commands that one of its ports takes of all hosts, None if no paper says.
    ``vendor`` and ``model`` are globs for the LUNs' standard INQUIRY data (SPC-4 6.6.2), of which
    one each must fit.
    """

    name: Text
    vendor: Annotated[tuple[Text, ...], Meta(min_length=1)]
    model: Annotated[tuple[Text, ...], Meta(min_length=1)]
    lun_depth: Commands
    source: Text
    per_data_drive: Annotated[int, Meta(ge=0, le=1024)] = 0
    port_limit: Commands | None = None
    port_source: Text | None = None


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    array: tuple[ArrayModel, ...]


@cache
def load_arrays(shipped: Path) -> tuple[ArrayModel, ...]:
    """Return the known makes of arrays. Raises ``PolicyError``."""
    from hbatune.policy.schema import decode

    file = read_toml(shipped / ARRAYS)
    arrays = decode(file, _File).array
    known = load_sources(shipped)
    for number, array in enumerate(arrays):
        for key in ("source", "port_source"):
            source = getattr(array, key)
            if source is not None and source not in known:
                raise PolicyError(
                    f"cites {source}, which is no source",
                    file=file.path,
                    line=file.line(("array", number, key)),
                    hint=nearest(source, known),
                )
    return arrays


def model_of(vendor: str, model: str, arrays: Iterable[ArrayModel]) -> ArrayModel | None:
    """Return the make of array of a LUN with this vendor and model, None if it is not known."""
    fitting = (a for a in arrays if matches_glob(vendor, a.vendor) and matches_glob(model, a.model))
    return next(fitting, None)


Positive = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=1)]
Range = tuple[Count, Count]


class MediumFigures(Struct, frozen=True, forbid_unknown_fields=True):
    """The measured 4K random reads of one medium: latencies at ``depth`` in ms, IOPS and knee.

    ``iops``, ``knee`` and ``mean_ms`` go from the least to the most. Of the mean the document does
    not say at what depth it was measured.
    """

    when: Match
    depth: Count
    p95_ms: Positive
    p99_ms: Positive
    p999_ms: Positive
    iops: Range
    source: Text
    knee: Range | None = None
    mean_ms: tuple[Positive, Positive] | None = None
    mean_source: Text | None = None


class MixFigures(Struct, frozen=True, forbid_unknown_fields=True):
    """What so many percent of reads cost of the IOPS of reads alone, from the least to the most."""

    reads: Annotated[int, Meta(ge=0, le=100)]
    cost: tuple[Positive, Positive]
    source: Text


class LinkFigures(Struct, frozen=True, forbid_unknown_fields=True):
    """The highest measured throughput of ``adapters`` behind links of one kind, in GB/s."""

    when: LinkMatch
    adapters: Count
    gb_per_s: Positive
    source: Text


class RaidFigures(Struct, frozen=True, forbid_unknown_fields=True):
    """The highest measured rates of ``adapters`` of one card with arrays of one RAID level.

    ``card`` is the name in the documents (``Adapter.document``). Random ones are IOPS of 4 KiB, the
    others GB/s of large sequential transfers, both of all ``drives`` together.
    """

    card: Text
    when: LinkMatch
    level: Annotated[int, Meta(ge=0, le=60)]
    adapters: Count
    drives: Count
    random_read: Count
    random_write: Count
    read_gb_per_s: Positive
    write_gb_per_s: Positive
    source: Text


class Yardsticks(Struct, frozen=True, forbid_unknown_fields=True):
    """The measurements of the documents that results can be compared with."""

    medium: tuple[MediumFigures, ...] = ()
    mix: tuple[MixFigures, ...] = ()
    link: tuple[LinkFigures, ...] = ()
    raid: tuple[RaidFigures, ...] = ()


@cache
def load_yardsticks(shipped: Path) -> Yardsticks:
    """Return the measurements of the documents. Raises ``PolicyError``."""
    from hbatune.policy.schema import decode

    file = read_toml(shipped / YARDSTICKS)
    found = decode(file, Yardsticks)
    known = load_sources(shipped)
    for table in ("medium", "link", "raid"):
        for number, each in enumerate(getattr(found, table)):
            if each.source not in known:
                raise PolicyError(
                    f"cites {each.source}, which is no source",
                    file=file.path,
                    line=file.line((table, number, "source")),
                    hint=nearest(each.source, known),
                )
    return found


class Library(Struct, frozen=True):
    """The folders that rules and configuration are read from.

    ``owner`` is the uid that alone may write the site's files and the folders on the way to them,
    None to skip that check; folders above ``top`` are not checked. Shipped files are trusted like
    the code beside them.
    """

    shipped: Path
    site: Path = Path("/etc/hbatune")
    owner: int | None = None
    top: Path = ROOT

    def sources(self) -> Mapping[str, Source]:
        """Return the sources that rules may cite, by id."""
        return load_sources(self.shipped)

    def arrays(self) -> tuple[ArrayModel, ...]:
        """Return the known makes of shared arrays."""
        return load_arrays(self.shipped)

    def yardsticks(self) -> Yardsticks:
        """Return the measurements of the documents, to compare results with."""
        return load_yardsticks(self.shipped)

    def read_site(self, path: Path) -> TomlFile:
        """Return one of the site's files; raise ``PolicyError`` or ``FileNotFoundError``."""
        return read_toml(path, top=self.top, owner=self.owner)

    def site_files(self, folder: str) -> Iterator[TomlFile]:
        """Yield the TOML files of one of the site's folders by name; raise ``PolicyError``."""
        for path in _toml_files(self.site / folder):
            yield _read(self, path, Origin.SITE)


def installed_library() -> Library:
    """Return the library of this system; a process of root trusts only root's files."""
    return Library(shipped("rules"), owner=0 if os.geteuid() == 0 else None)


def profiles(library: Library) -> tuple[Listed, ...]:
    """Return the profiles that can be chosen, by name. Raises ``PolicyError``."""
    found: dict[str, Listed] = {}
    for name in _names(library):
        if (at := _find(library, name)) is not None:
            title = _title(library, *at)
            if title is not None:
                found[name] = Listed(name, title, at[1], str(at[0]))
    return tuple(found[name] for name in sorted(found))


def load_profile(name: str, library: Library, followed: Collection[Rule] = ()) -> Profile:
    """Return a complete profile: its includes, its own rules, then the site's ``rules.d``.

    The order decides, since the last matching rule wins. ``followed`` are the vendors' rules that
    the site follows (``vendors.rules_followed``), which stand before its own. Raises
    ``PolicyError``.
    """
    parts: dict[Path, Part] = {}
    path, origin = _find(library, name) or _unknown(library, name)
    _gather(library, (path, origin), parts, stack=())
    own = parts[path]
    if own.title is None:
        raise PolicyError(
            "has no title, so it is a part for profiles to include and cannot be chosen itself",
            file=path,
            key="title",
        )
    probes = [part.probe for part in parts.values() if part.probe is not None]
    tolerances = [part.tolerance for part in parts.values() if part.tolerance is not None]
    # The site's rules come last, and so win.
    site = tuple(_site_rules(library))
    everything = [*parts.values(), *site]
    rules = [rule for part in parts.values() for rule in part.rules]
    return Profile(
        name=name,
        title=own.title,
        origin=origin,
        rules=(*rules, *followed, *(rule for part in site for rule in part.rules)),
        objectives=tuple(objective for part in everything for objective in part.objectives),
        probe=probes[-1] if probes else ProbeSpec(),
        files=tuple(part.file for part in everything),
        options=tuple(option for part in everything for option in part.options),
        tolerance=tolerances[-1] if tolerances else Tolerance(),
    )


def _gather(
    library: Library,
    at: tuple[Path, Origin],
    parts: dict[Path, Part],
    stack: tuple[Path, ...],
) -> None:
    """Add the file to ``parts``, after the files that it includes, each file once."""
    path, origin = at
    if path in parts:  # two includes may share a third: its rules stand before those of both
        return
    part = _part(library, path, origin)
    for name in part.include:
        # A site's profile may include the shipped one of its own name: not itself, then.
        found = _find(library, name, not_in=path if origin is Origin.SITE else None)
        if found is None:
            raise PolicyError(
                f"found {quoted(name)}, which is no file in {library.site}/profiles or shipped",
                file=path,
                line=_line_of_include(library, path, origin),
                key="include",
                found=quoted(name),
                hint=nearest(name, _names(library)),
            )
        if found[0] in (*stack, path):
            circle = " → ".join(each.stem for each in (*stack, path, found[0]))
            line = _line_of_include(library, path, origin)
            raise PolicyError(f"goes in a circle: {circle}", file=path, line=line, key="include")
        _gather(library, found, parts, (*stack, path))
    parts[path] = part


def _line_of_include(library: Library, path: Path, origin: Origin) -> int | None:
    return _read(library, path, origin).line(("include",))


def _part(library: Library, path: Path, origin: Origin) -> Part:
    """Return a file of a profile, checked: as the build has compiled it, or parsed."""
    if (part := _ready(library, path, origin)) is not None:
        return part
    from hbatune.policy.rules import part_of  # only where there is something to parse

    return part_of(_read(library, path, origin), origin, library.sources())


def _title(library: Library, path: Path, origin: Origin) -> str | None:
    """Return the title of a file of a profile, whose rules need make no sense."""
    if (part := _ready(library, path, origin)) is not None:
        return part.title
    from hbatune.policy.schema import ProfileFile, decode

    return decode(_read(library, path, origin), ProfileFile).title


def _ready(library: Library, path: Path, origin: Origin) -> Part | None:
    """Return a shipped file as the build has compiled it, None where it is to be parsed."""
    if origin is Origin.SITE or (found := load_compiled(library.shipped / SOURCES)) is None:
        return None
    return found.part(path, read_text(path))


def _site_rules(library: Library) -> Iterator[Part]:
    for file in library.site_files("rules.d"):
        from hbatune.policy.rules import rules_of  # few sites have such files

        yield rules_of(file, library.sources())


def _folders(library: Library) -> tuple[tuple[Origin, Path], ...]:
    return (Origin.SHIPPED, library.shipped), (Origin.SITE, library.site / "profiles")


def _find(library: Library, name: str, not_in: Path | None = None) -> tuple[Path, Origin] | None:
    """Return the file of a profile or part, the site's first, but not the one in ``not_in``."""
    if not re.match(NAME, name):  # nor may a name lead out of the folders, as ../../x would
        return None
    for origin, folder in reversed(_folders(library)):
        path = folder / f"{name}.toml"
        if path.name not in FILES and path != not_in and _exists(path):
            return path, origin
    return None


def _unknown(library: Library, name: str) -> tuple[Path, Origin]:
    known = [profile.name for profile in profiles(library)]
    raise PolicyError(
        f"there is no profile {quoted(name)}, only {', '.join(known) or 'none at all'}",
        found=quoted(name),
        allowed=", ".join(known),
        hint=nearest(name, known),
    )


def _names(library: Library) -> list[str]:
    return [path.stem for _, folder in _folders(library) for path in _toml_files(folder)]


def _read(library: Library, path: Path, origin: Origin) -> TomlFile:
    try:
        return library.read_site(path) if origin is Origin.SITE else read_toml(path)
    except FileNotFoundError as error:
        raise PolicyError("is not there (any more)", file=path) from error


def _exists(path: Path) -> bool:
    try:
        path.lstat()  # not stat(): a dangling link is a mistake to report, not an absent file
    except FileNotFoundError:
        return False
    except OSError as error:
        raise PolicyError(f"cannot be read: {error.strerror}", file=path) from error
    return True


def _toml_files(folder: Path) -> list[Path]:
    """Return the folder's ``*.toml`` by name, none if there is no such folder."""
    try:
        return sorted(each for each in folder.iterdir() if each.suffix == ".toml")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise PolicyError(f"cannot be read: {error.strerror}", file=folder) from error
