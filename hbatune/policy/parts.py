"""Checks the files that profiles are made of, and compiles the shipped ones for the build."""

from collections.abc import Collection
from pathlib import Path

import msgspec
from msgspec import Raw

from hbatune import __version__
from hbatune.policy.compiled import Compiled, Part
from hbatune.policy.files import TomlFile, read_toml
from hbatune.policy.load import FILES, SOURCES, load_sources
from hbatune.policy.model import Origin
from hbatune.policy.rules import checked_objectives, checked_options, checked_rules
from hbatune.policy.schema import ProfileFile, RulesFile, decode


def part_of(file: TomlFile, origin: Origin, sources: Collection[str]) -> Part:
    """Return a profile, or a part that profiles include; ``sources`` are the ids that may be cited.

    Raises ``PolicyError`` for the first thing in it that makes no sense.
    """
    content = decode(file, ProfileFile)
    return Part(
        file=str(file.path),
        origin=origin,
        title=content.title,
        include=content.include,
        probe=content.probe,
        tolerance=content.tolerance,
        rules=checked_rules(file, content.rule, origin, sources),
        objectives=checked_objectives(file, content.objective, origin, sources),
        options=checked_options(file, content.option, origin, sources),
    )


def rules_of(file: TomlFile, sources: Collection[str]) -> Part:
    """Return a file of a site's ``rules.d``; raises as ``part_of`` does."""
    content, origin = decode(file, RulesFile), Origin.SITE
    return Part(
        file=str(file.path),
        origin=origin,
        rules=checked_rules(file, content.rule, origin, sources),
        objectives=checked_objectives(file, content.objective, origin, sources),
        options=checked_options(file, content.option, origin, sources),
    )


def compile_shipped(folder: Path) -> bytes:
    """Return the content of ``compiled.FILE`` for a folder of shipped rules.

    Raises ``PolicyError`` as they would be refused by a command.
    """
    encode = msgspec.msgpack.encode
    sources = load_sources(folder)
    files = [read_toml(path) for path in sorted(folder.glob("*.toml"))]
    profiles = [file for file in files if file.path.name not in FILES]
    return encode(
        Compiled(
            version=__version__,
            texts={file.path.name: file.text for file in (*profiles, read_toml(folder / SOURCES))},
            parts={
                file.path.stem: Raw(encode(part_of(file, Origin.SHIPPED, sources).placed(Path())))
                for file in profiles
            },
            sources=Raw(encode(sources)),
        )
    )
