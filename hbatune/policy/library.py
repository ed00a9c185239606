"""Find profiles and the tables that rules refer to, check them, and assemble each profile.

A profile consists of its file, its includes and the local rules. A site's ``profiles/NAME.toml``
overrides the shipped ``NAME.toml``, and may include it. The shipped tables are the sources, the LUN
limits of shared arrays, and the documents' measurements as reference values.
"""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, TypeVar

from msgspec import Meta, Struct, field
from msgspec.structs import asdict, replace

from hbatune.facts.names import matches_glob
from hbatune.policy import profile as profiles
from hbatune.policy import rules, toml_files
from hbatune.policy.profile import LinkMatch, Match, Origin, Profile, Rule, Source, Text, Texts
from hbatune.policy.schema import ProfileFile, RulesFile, SourcesFile, decode_file, make_error
from hbatune.policy.toml_files import PolicyError, TomlFile, read_toml, suggest_nearest
from hbatune.shipped import find_shipped

SIZING = "sizing.toml"
STORED_RULES = Path("/var/lib/hbatune/rules")
_LIBRARY_FILES = ("sources.toml", "arrays.toml", "yardsticks.toml", SIZING)
T = TypeVar("T", bound=Struct)


@cache  # shipped files change only together with the code
def load_sources(shipped: Path) -> Mapping[str, Source]:
    """Return the shipped sources by id, such as ``D0-1``; PolicyError for an unknown document."""
    file = read_toml(shipped / "sources.toml")
    table = decode_file(file, SourcesFile)
    sources = {}
    for name, entry in table.source.items():
        document = table.document.get(entry.document)
        if document is None:
            hint = suggest_nearest(entry.document, table.document)
            problem = f"cites document {entry.document}, which has no table"
            raise PolicyError(problem, file=file.path, place=f"source {name}", hint=hint)
        place = (entry.document, document.title, entry.section)
        sources[name] = Source(name, *place, entry.says, entry.settings)
    return sources


Commands = Annotated[int, Meta(ge=1, le=65536)]


class ArrayModel(Struct, frozen=True, forbid_unknown_fields=True):
    """One make of array: ``lun_depth`` commands for each LUN, and more for each data drive.

    ``port_limit`` is the number of commands that a port accepts from all hosts, or None if no paper
    gives it. ``vendor`` and ``model`` are globs for the LUNs' standard INQUIRY data (SPC-4 6.6.2).
    At least one of each must match.
    """

    name: Text
    vendor: Texts
    model: Texts
    lun_depth: Commands
    source: Text
    per_data_drive: Annotated[int, Meta(ge=0, le=1024)] = 0
    port_limit: Commands | None = None
    port_source: Text | None = None


class _ArraysFile(Struct, frozen=True, forbid_unknown_fields=True):
    array: tuple[ArrayModel, ...]


@cache
def load_cited(path: Path, shape: type[T]) -> T:
    """Return a shipped file of tables. Raise ``PolicyError`` if one cites an unknown source."""
    file = read_toml(path)
    content, sources = decode_file(file, shape), load_sources(path.parent)
    for table, value in asdict(content).items():
        for number, entry in enumerate(value if isinstance(value, tuple) else (value,)):
            for key in ("source", "port_source"):
                source = getattr(entry, key, None)
                if source is not None and source not in sources:
                    line, hint = file.line((table, number, key)), suggest_nearest(source, sources)
                    problem = f"cites {source}, which is not a source"
                    raise PolicyError(problem, file=file.path, line=line, hint=hint)
    return content


def find_model(vendor: str, model: str, arrays: Iterable[ArrayModel]) -> ArrayModel | None:
    """Return the make of array of a LUN with this vendor and model, or None if it is unknown."""
    for array in arrays:
        if matches_glob(vendor, array.vendor) and matches_glob(model, array.model):
            return array
    return None


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


class RunFigures(Struct, frozen=True, forbid_unknown_fields=True):
    """The figures of one run of a document, by the fields of ``probe.result.Figures``.

    ``pattern`` is a ``probe.result.Pattern``. ``depth`` counts the I/Os of all jobs, None for any.
    """

    when: Match
    pattern: Text
    block_size: Count
    figures: dict[str, Positive]
    source: Text
    depth: Count | None = None


class Yardsticks(Struct, frozen=True, forbid_unknown_fields=True):
    """The documents' measurements, as reference values for results."""

    medium: tuple[MediumFigures, ...] = ()
    mix: tuple[MixFigures, ...] = ()
    link: tuple[LinkFigures, ...] = ()
    raid: tuple[RaidFigures, ...] = ()
    run: tuple[RunFigures, ...] = ()


class Library(Struct, frozen=True):
    """The directories of rules and configuration.

    Only the uid ``owner`` may have write access to the site's files and their parent directories.
    None skips this check. Directories above ``top`` are not checked. Shipped files are trusted like
    the code. ``stored`` is the copy of the shipped files that the last apply used.
    """

    shipped: Path
    site: Path = Path("/etc/hbatune")
    owner: int | None = None
    top: Path = toml_files.ROOT
    stored: Path = field(default_factory=lambda: STORED_RULES)

    def is_last_applied(self) -> bool:
        """Return whether the shipped rules equal the rules of the last apply, or it stored none.

        If an administrator has closed the folder, other users compare with the shipped rules.
        """
        try:
            return read_rules(self.stored) in ({}, read_rules(self.shipped))
        except OSError as error:
            return isinstance(error, PermissionError)

    def sources(self) -> Mapping[str, Source]:
        """Return the sources that rules may cite, by id."""
        return load_sources(self.shipped)

    def arrays(self) -> tuple[ArrayModel, ...]:
        """Return the known makes of shared arrays."""
        file: _ArraysFile = load_cited(self.shipped / "arrays.toml", _ArraysFile)
        return file.array

    def yardsticks(self) -> Yardsticks:
        """Return the documents' measurements, as reference values for results."""
        figures: Yardsticks = load_cited(self.shipped / "yardsticks.toml", Yardsticks)
        return figures

    def read_site(self, path: Path) -> TomlFile:
        """Return one of the site's files. Raise ``PolicyError`` or ``FileNotFoundError``."""
        return read_toml(path, top=self.top, owner=self.owner)

    def site_files(self, folder: str, errors: rules.Doubts = None) -> Iterator[TomlFile]:
        """Yield a directory's TOML files by name; raise ``PolicyError`` or add it to ``errors``."""
        for path in _list_toml_files(self.site / folder):
            with PolicyError.collect(errors):
                yield _read_file(self, path, Origin.SITE)

    def list_rule_uses(self) -> set[str]:
        """Return the uses of disks that the site's rules name."""
        uses: set[str] = set()
        for folder, shape in (("rules.d", RulesFile), ("profiles", ProfileFile)):
            for file in self.site_files(folder):
                uses.update(*(table.when.use for table in decode_file(file, shape).rule))
        return uses


def installed_library() -> Library:
    """Return the library of this system. A root process trusts only root's files."""
    return Library(find_shipped("rules"), owner=0 if os.geteuid() == 0 else None)


def read_rules(folder: Path) -> dict[str, bytes]:
    """Return the files of a directory of shipped rules by relative name. Raises OSError."""
    paths = sorted((*folder.glob("*.toml"), *folder.glob("vendors/*.toml")))
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def list_profiles(library: Library) -> tuple[profiles.ListedProfile, ...]:
    """Return the available profiles, sorted by name. Raise ``PolicyError`` if one is invalid."""
    listed: dict[str, profiles.ListedProfile] = {}
    for name in _list_names(library):
        if (location := _find_file(library, name)) is not None:
            path, origin = location
            # Only the title: the rules of a listed profile may be invalid.
            title = decode_file(_read_file(library, path, origin), ProfileFile).title
            if title is not None:
                listed[name] = profiles.ListedProfile(name, title, origin, str(path))
    return tuple(listed[name] for name in sorted(listed))


def load_profile(
    name: str, library: Library, followed: Collection[Rule] = (), doubts: rules.Doubts = None
) -> Profile:
    """Return a complete profile: its includes, its own rules, then the site's ``rules.d``.

    The order matters, since the last matching rule wins. ``followed`` are the vendor rules that the
    site follows (``vendors.load_followed_rules``). They precede the local rules. Raise
    ``PolicyError`` if a file is invalid. ``doubts`` collects invalid citations (``check_rules``).
    """
    parts: dict[Path, rules.ProfilePart] = {}
    location = _find_file(library, name)
    if location is None:
        names = [profile.name for profile in list_profiles(library)]
        available = ", ".join(names) or "none at all"
        quoted = toml_files.quote_value(name)
        hint = suggest_nearest(name, names) or "`hbatune profiles` lists the profiles"
        raise PolicyError(f"there is no profile {quoted}, only {available}", hint=hint)
    path, origin = location
    _gather_parts(library, location, parts, (), doubts)
    title = parts[path].table.title
    if title is None:
        problem = "has no title, so it is a part for profiles to include and cannot be chosen"
        raise PolicyError(problem, file=path, key="title")
    profile = Profile(name, title, origin, (), (), profiles.ProbeSpec(source="D4-11"), ())
    for part in parts.values():
        profile = _add_part(profile, part)
    profile = replace(profile, rules=(*profile.rules, *followed))
    # Local rules come last, so they win.
    for file in library.site_files("rules.d"):
        part = rules.check_part(file, Origin.SITE, library.sources(), RulesFile, doubts)
        profile = _add_part(profile, part)
    return profile


def _add_part(profile: Profile, part: rules.ProfilePart) -> Profile:
    return replace(
        profile,
        rules=profile.rules + part.rules,
        objectives=profile.objectives + part.objectives,
        probe=part.table.probe or profile.probe,
        files=(*profile.files, part.file),
        options=profile.options + part.options,
        tolerance=part.table.tolerance or profile.tolerance,
    )


def _gather_parts(
    library: Library,
    location: tuple[Path, Origin],
    parts: dict[Path, rules.ProfilePart],
    stack: tuple[Path, ...],
    doubts: rules.Doubts,
) -> None:
    """Add the file to ``parts``, after its includes, each file once."""
    path, origin = location
    if path in parts:  # two includes may share a third, whose rules precede theirs
        return
    file = _read_file(library, path, origin)
    # The tests check the citations of shipped files, so most commands need not read the sources.
    sources = library.sources() if origin is Origin.SITE else None
    part = rules.check_part(file, origin, sources, doubts=doubts)
    for name in part.table.include:
        # A site's profile may include the shipped profile of the same name, but not itself.
        included = _find_file(library, name, not_in=path if origin is Origin.SITE else None)
        if included is None:
            folders = f"{library.site}/profiles or shipped"
            hint = suggest_nearest(name, _list_names(library))
            problem = f"found {toml_files.quote_value(name)}, which is not a file in {folders}"
            raise make_error(file, ("include",), problem, key="include", hint=hint)
        if included[0] in (*stack, path):
            circle = " → ".join(member.stem for member in (*stack, path, included[0]))
            raise make_error(file, ("include",), f"goes in a circle: {circle}", key="include")
        _gather_parts(library, included, parts, (*stack, path), doubts)
    parts[path] = part


def _find_file(
    library: Library, name: str, not_in: Path | None = None
) -> tuple[Path, Origin] | None:
    """Return the file of a profile or part, the site's first, except the file ``not_in``."""
    # Also rejects ../../x, which leads out of the directories.
    if not re.match(profiles.NAME_PATTERN, name):
        return None
    site_folder = library.site / "profiles"
    for origin, folder in ((Origin.SITE, site_folder), (Origin.SHIPPED, library.shipped)):
        path = folder / f"{name}.toml"
        if path.name not in _LIBRARY_FILES and path != not_in and _exists(path):
            return path, origin
    return None


def _list_names(library: Library) -> list[str]:
    paths = _list_toml_files(library.shipped) + _list_toml_files(library.site / "profiles")
    return [path.stem for path in paths]


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
