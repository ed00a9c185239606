"""Find profiles and the tables that rules refer to, check them, and assemble each profile.

A profile consists of its file, its includes and the local rules. A site's ``profiles/NAME.toml``
overrides the shipped ``NAME.toml``, and may include it.

The shipped tables contain:

- the sources, by id: recommendations of the documents and facts about the kernel
- the LUN limits of each make of shared array
- measurements from the documents, as reference values

A build checks and compiles the shipped files and stores the result next to this module. Loading it
is 13 times faster than parsing, which takes 11 of the 85 ms of a diff. The compiled file is used
only if hbatune's version and the text of the files are unchanged. Otherwise, and in a checkout,
which has no compiled file, the files are parsed. A site's files are always parsed.
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
    """The compiled rule files: the encoded parts, the encoded sources, and the original texts.

    The keys of ``parts`` are file names without suffix, the keys of ``texts`` have the suffix.
    """

    version: str
    texts: Mapping[str, str]
    parts: Mapping[str, Raw]
    sources: Raw

    def part(self, path: Path, text: str) -> Part | None:
        """Return the part compiled from a file with this text, or None."""
        if path.stem not in self.parts or self.texts[path.name] != text:
            return None
        return msgspec.msgpack.decode(self.parts[path.stem], type=Part).placed(path)

    def all_sources(self) -> Mapping[str, Source]:
        """Return the sources that parts may cite, by id."""
        return msgspec.msgpack.decode(self.sources, type=dict[str, Source])


@cache
def load_compiled(sources: Path) -> CompiledProfiles | None:
    """Return the profiles compiled with this file of sources, or None."""
    try:
        compiled = msgspec.msgpack.decode(COMPILED_FILE.read_bytes(), type=CompiledProfiles)
        is_current = (
            compiled.version == __version__
            and compiled.texts.get(sources.name) == sources.read_text()
        )
    except (OSError, UnicodeDecodeError, msgspec.DecodeError):  # no ValueError in msgspec 0.19
        return None
    return compiled if is_current else None


SOURCES, ARRAYS, YARDSTICKS, SIZING = FILES = (
    *("sources.toml", "arrays.toml"),
    *("yardsticks.toml", "sizing.toml"),
)


@cache  # shipped files change only together with the code
def load_sources(shipped: Path) -> Mapping[str, Source]:
    """Return every shipped source by its id, such as ``D0-1`` or ``K-nr-requests``.

    Raise ``PolicyError`` if one cites a document that is not in the file.
    """
    if (ready := load_compiled(shipped / SOURCES)) is not None:
        return ready.all_sources()
    from hbatune.policy.schema import SourcesFile, decode  # needed only for parsing

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

    ``port_limit`` is the number of commands that a port accepts from all hosts, or None if no paper
    gives it. ``vendor`` and ``model`` are globs for the LUNs' standard INQUIRY data (SPC-4 6.6.2).
    At least one of each must match.
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
    """Return the known makes of arrays. Raise ``PolicyError`` if the file is invalid."""
    from hbatune.policy.schema import decode

    file = read_toml(shipped / ARRAYS)
    arrays = decode(file, _File).array
    sources = load_sources(shipped)
    for number, array in enumerate(arrays):
        for key in ("source", "port_source"):
            source = getattr(array, key)
            if source is not None and source not in sources:
                raise PolicyError(
                    f"cites {source}, which is no source",
                    file=file.path,
                    line=file.line(("array", number, key)),
                    hint=nearest(source, sources),
                )
    return arrays


def model_of(vendor: str, model: str, arrays: Iterable[ArrayModel]) -> ArrayModel | None:
    """Return the make of array of a LUN with this vendor and model, or None if it is unknown."""
    fitting = (a for a in arrays if matches_glob(vendor, a.vendor) and matches_glob(model, a.model))
    return next(fitting, None)


Positive = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=1)]
Range = tuple[Count, Count]


class MediumFigures(Struct, frozen=True, forbid_unknown_fields=True):
    """The measured 4K random reads of one medium: latencies at ``depth`` in ms, IOPS and knee.

    ``iops``, ``knee`` and ``mean_ms`` are minimum and maximum. The document does not give the depth
    at which the mean was measured.
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
    """The loss of IOPS at ``reads`` percent of reads, as a fraction: minimum and maximum."""

    reads: Annotated[int, Meta(ge=0, le=100)]
    cost: tuple[Positive, Positive]
    source: Text


class LinkFigures(Struct, frozen=True, forbid_unknown_fields=True):
    """The highest measured throughput of ``adapters`` behind links of one type, in GB/s."""

    when: LinkMatch
    adapters: Count
    gb_per_s: Positive
    source: Text


class RaidFigures(Struct, frozen=True, forbid_unknown_fields=True):
    """The highest measured rates of ``adapters`` of one card with arrays of one RAID level.

    ``card`` is the name in the documents (``Adapter.document``). Random rates are IOPS of 4 KiB,
    the others GB/s of large sequential transfers. Both are totals of all ``drives``.
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
    """The documents' measurements, as reference values for results."""

    medium: tuple[MediumFigures, ...] = ()
    mix: tuple[MixFigures, ...] = ()
    link: tuple[LinkFigures, ...] = ()
    raid: tuple[RaidFigures, ...] = ()


@cache
def load_yardsticks(shipped: Path) -> Yardsticks:
    """Return the documents' measurements. Raise ``PolicyError`` if the file is invalid."""
    from hbatune.policy.schema import decode

    file = read_toml(shipped / YARDSTICKS)
    yardsticks = decode(file, Yardsticks)
    sources = load_sources(shipped)
    for table in ("medium", "link", "raid"):
        for number, figures in enumerate(getattr(yardsticks, table)):
            if figures.source not in sources:
                raise PolicyError(
                    f"cites {figures.source}, which is no source",
                    file=file.path,
                    line=file.line((table, number, "source")),
                    hint=nearest(figures.source, sources),
                )
    return yardsticks


class Library(Struct, frozen=True):
    """The directories of rules and configuration.

    Only the uid ``owner`` may have write access to the site's files and their parent directories.
    None skips this check. Directories above ``top`` are not checked. Shipped files are trusted like
    the code.
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
        """Return the documents' measurements, as reference values for results."""
        return load_yardsticks(self.shipped)

    def read_site(self, path: Path) -> TomlFile:
        """Return one of the site's files. Raise ``PolicyError`` or ``FileNotFoundError``."""
        return read_toml(path, top=self.top, owner=self.owner)

    def site_files(self, folder: str) -> Iterator[TomlFile]:
        """Yield the TOML files of one of the site's directories, sorted by name.

        Raise ``PolicyError`` if a file is invalid.
        """
        for path in _list_toml_files(self.site / folder):
            yield _read_file(self, path, Origin.SITE)


def installed_library() -> Library:
    """Return the library of this system. A root process trusts only root's files."""
    return Library(shipped("rules"), owner=0 if os.geteuid() == 0 else None)


def profiles(library: Library) -> tuple[Listed, ...]:
    """Return the available profiles, sorted by name. Raise ``PolicyError`` if one is invalid."""
    listed: dict[str, Listed] = {}
    for name in _list_names(library):
        if (location := _find_file(library, name)) is not None:
            title = _load_title(library, *location)
            if title is not None:
                listed[name] = Listed(name, title, location[1], str(location[0]))
    return tuple(listed[name] for name in sorted(listed))


def load_profile(name: str, library: Library, followed: Collection[Rule] = ()) -> Profile:
    """Return a complete profile: its includes, its own rules, then the site's ``rules.d``.

    The order matters, since the last matching rule wins. ``followed`` are the vendor rules that the
    site follows (``vendors.rules_followed``). They precede the local rules. Raise ``PolicyError``
    if a file is invalid.
    """
    parts: dict[Path, Part] = {}
    path, origin = _find_file(library, name) or _raise_unknown(library, name)
    _gather_parts(library, (path, origin), parts, stack=())
    main_part = parts[path]
    if main_part.title is None:
        raise PolicyError(
            "has no title, so it is a part for profiles to include and cannot be chosen itself",
            file=path,
            key="title",
        )
    probes = [part.probe for part in parts.values() if part.probe is not None]
    tolerances = [part.tolerance for part in parts.values() if part.tolerance is not None]
    # Local rules come last, so they win.
    site = tuple(_load_site_rules(library))
    all_parts = [*parts.values(), *site]
    rules = [rule for part in parts.values() for rule in part.rules]
    return Profile(
        name=name,
        title=main_part.title,
        origin=origin,
        rules=(*rules, *followed, *(rule for part in site for rule in part.rules)),
        objectives=tuple(objective for part in all_parts for objective in part.objectives),
        probe=probes[-1] if probes else ProbeSpec(),
        files=tuple(part.file for part in all_parts),
        options=tuple(option for part in all_parts for option in part.options),
        tolerance=tolerances[-1] if tolerances else Tolerance(),
    )


def _gather_parts(
    library: Library,
    location: tuple[Path, Origin],
    parts: dict[Path, Part],
    stack: tuple[Path, ...],
) -> None:
    """Add the file to ``parts``, after its includes, each file once."""
    path, origin = location
    if path in parts:  # two includes may share a third, whose rules precede theirs
        return
    part = _load_part(library, path, origin)
    for name in part.include:
        # A site's profile may include the shipped profile of the same name, but not itself.
        included = _find_file(library, name, not_in=path if origin is Origin.SITE else None)
        if included is None:
            raise PolicyError(
                f"found {quoted(name)}, which is no file in {library.site}/profiles or shipped",
                file=path,
                line=_find_include_line(library, path, origin),
                key="include",
                found=quoted(name),
                hint=nearest(name, _list_names(library)),
            )
        if included[0] in (*stack, path):
            circle = " → ".join(file.stem for file in (*stack, path, included[0]))
            line = _find_include_line(library, path, origin)
            raise PolicyError(f"goes in a circle: {circle}", file=path, line=line, key="include")
        _gather_parts(library, included, parts, (*stack, path))
    parts[path] = part


def _find_include_line(library: Library, path: Path, origin: Origin) -> int | None:
    return _read_file(library, path, origin).line(("include",))


def _load_part(library: Library, path: Path, origin: Origin) -> Part:
    """Return a checked profile file, either compiled by the build or parsed."""
    if (part := _load_compiled_part(library, path, origin)) is not None:
        return part
    from hbatune.policy.rules import part_of  # needed only for parsing

    return part_of(_read_file(library, path, origin), origin, library.sources())


def _load_title(library: Library, path: Path, origin: Origin) -> str | None:
    """Return the title of a profile file, whose rules may be invalid."""
    if (part := _load_compiled_part(library, path, origin)) is not None:
        return part.title
    from hbatune.policy.schema import ProfileFile, decode

    return decode(_read_file(library, path, origin), ProfileFile).title


def _load_compiled_part(library: Library, path: Path, origin: Origin) -> Part | None:
    """Return a shipped file compiled by the build, or None if it must be parsed."""
    if origin is Origin.SITE or (compiled := load_compiled(library.shipped / SOURCES)) is None:
        return None
    return compiled.part(path, read_text(path))


def _load_site_rules(library: Library) -> Iterator[Part]:
    for file in library.site_files("rules.d"):
        from hbatune.policy.rules import rules_of  # few sites have such files

        yield rules_of(file, library.sources())


def _list_folders(library: Library) -> tuple[tuple[Origin, Path], ...]:
    return (Origin.SHIPPED, library.shipped), (Origin.SITE, library.site / "profiles")


def _find_file(
    library: Library, name: str, not_in: Path | None = None
) -> tuple[Path, Origin] | None:
    """Return the file of a profile or part, the site's first, except the file ``not_in``."""
    if not re.match(NAME, name):  # this also rejects ../../x, which leads out of the directories
        return None
    for origin, folder in reversed(_list_folders(library)):
        path = folder / f"{name}.toml"
        if path.name not in FILES and path != not_in and _exists(path):
            return path, origin
    return None


def _raise_unknown(library: Library, name: str) -> tuple[Path, Origin]:
    names = [profile.name for profile in profiles(library)]
    raise PolicyError(
        f"there is no profile {quoted(name)}, only {', '.join(names) or 'none at all'}",
        found=quoted(name),
        allowed=", ".join(names),
        hint=nearest(name, names),
    )


def _list_names(library: Library) -> list[str]:
    return [path.stem for _, folder in _list_folders(library) for path in _list_toml_files(folder)]


def _read_file(library: Library, path: Path, origin: Origin) -> TomlFile:
    try:
        return library.read_site(path) if origin is Origin.SITE else read_toml(path)
    except FileNotFoundError as error:
        raise PolicyError("is not there (any more)", file=path) from error


def _exists(path: Path) -> bool:
    try:
        path.lstat()  # not stat(): a dangling link is an error, not an absent file
    except FileNotFoundError:
        return False
    except OSError as error:
        raise PolicyError(f"cannot be read: {error.strerror}", file=path) from error
    return True


def _list_toml_files(folder: Path) -> list[Path]:
    """Return the directory's ``*.toml`` sorted by name, or nothing if it does not exist."""
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == ".toml")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise PolicyError(f"cannot be read: {error.strerror}", file=folder) from error
