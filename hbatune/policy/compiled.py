"""The shipped profiles as the build has compiled them: checked, and fast to load.

Parsing and checking TOML takes longer than all else that `hbatune diff` does. A build checks the
shipped files and puts the result beside this module; a checkout has none, and parses. What was
compiled counts only for files with exactly the text that it was compiled from, and for the same
version of hbatune: otherwise it is as if there were none. A site's own files are always parsed.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from hbatune import __version__
from hbatune.policy.model import (
    Objective,
    OptionRule,
    Origin,
    ProbeSpec,
    Rule,
    Source,
    Tolerance,
)

FILE = Path(__file__).resolve().parent / "compiled.msgpack"


class Part(Struct, frozen=True):
    """One file of a profile, checked; ``include`` are the names of those that it includes.

    Without a ``title`` it cannot be chosen itself.
    """

    file: str
    origin: Origin
    title: str | None = None
    include: tuple[str, ...] = ()
    probe: ProbeSpec | None = None
    tolerance: Tolerance | None = None
    rules: tuple[Rule, ...] = ()
    objectives: tuple[Objective, ...] = ()
    options: tuple[OptionRule, ...] = ()

    def placed(self, path: Path) -> "Part":
        """Return it as read from the file at ``path``."""
        file = str(path)
        return replace(
            self,
            file=file,
            rules=tuple(replace(each, file=file) for each in self.rules),
            options=tuple(replace(each, file=file) for each in self.options),
        )


class Compiled(Struct, frozen=True):
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
def compiled(sources: Path) -> Compiled | None:
    """Return what was compiled for rules that cite this file of sources, None if nothing was."""
    try:
        found = msgspec.msgpack.decode(FILE.read_bytes(), type=Compiled)
        same = found.version == __version__ and found.texts.get(sources.name) == sources.read_text()
    except (OSError, ValueError):  # as msgspec.DecodeError and UnicodeDecodeError are
        return None
    return found if same else None
