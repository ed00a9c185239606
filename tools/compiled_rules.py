"""Compile the shipped rules during a build (``hbatune.policy.library``)."""

from pathlib import Path

import msgspec
from msgspec import Raw

import hbatune
from hbatune import __version__
from hbatune.policy import library
from hbatune.policy.library import LIBRARY_FILES, SOURCES, CompiledProfiles, load_sources
from hbatune.policy.profile import Origin
from hbatune.policy.rules import check_part
from hbatune.policy.toml_files import read_toml
from hbatune.shipped import find_shipped


def write(package: Path) -> None:
    """Write the compiled file into the directory of a package ``hbatune``.

    Raise ``PolicyError`` if a rule is invalid.
    """
    place = library.COMPILED_FILE.relative_to(Path(hbatune.__file__).resolve().parent)
    (package / place).write_bytes(compile_shipped(find_shipped("rules")))


def compile_shipped(folder: Path) -> bytes:
    """Return the content of ``library.COMPILED_FILE`` for a directory of shipped rules.

    Raise ``PolicyError`` for the same rules as a command.
    """
    encode = msgspec.msgpack.encode
    sources = load_sources(folder)
    files = [read_toml(path) for path in sorted(folder.glob("*.toml"))]
    profiles = [file for file in files if file.path.name not in LIBRARY_FILES]
    return encode(
        CompiledProfiles(
            version=__version__,
            texts={file.path.name: file.text for file in (*profiles, read_toml(folder / SOURCES))},
            parts={
                file.path.stem: Raw(
                    encode(check_part(file, Origin.SHIPPED, sources).placed(Path()))
                )
                for file in profiles
            },
            sources=Raw(encode(sources)),
        )
    )
