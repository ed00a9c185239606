"""Reads one TOML file: regular, small, UTF-8, trusted, well-formed; and finds a mistake's line.

Every fault of a file is a ``PolicyError``, with all that a person needs to find it.

A path may be trusted with root's rights if one owner alone can change it: one rule for the site's
files and for programs that a root unit starts. A path is as safe as the weakest folder on the way
to it, so each one up to ``/`` counts, and so does each one that a link leads through. A sticky
folder such as ``/tmp`` is not trusted: others may put new files there.
"""

import errno
import os
import re
import stat
from collections import deque
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from msgspec import Struct

from hbatune import loader
from hbatune.errors import UsageError
from hbatune.loader import UnusableFileError

ROOT = Path("/")
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_MOST_LINKS = 40
"""Links that are followed at most (include/linux/namei.h: MAXSYMLINKS)."""

_LONGEST = 80


class Fault(Struct, frozen=True):
    """The reason why a path is not trusted, and the remedy.

    ``found`` and ``allowed`` are its owner or its mode. There is no ``remedy`` for a folder that is
    meant for everybody, such as ``/tmp``: what is to be trusted has to lie elsewhere.
    """

    path: Path
    problem: str
    found: str
    allowed: str
    remedy: str | None


class FollowedPath(Struct, frozen=True):
    """A path with all links followed: the folders in which names are looked up, and the ``end``."""

    folders: tuple[Path, ...]
    end: Path


def follow(path: Path, root: Path = ROOT) -> FollowedPath:
    """Follow an absolute path through all links, as a process would whose / is ``root``.

    ``path`` is as that process sees it. A name that does not exist is kept as it is. OSError
    (ELOOP) if links lead in a circle.
    """
    names = deque(path.parts[1:])
    here, links = root, 0
    folders: dict[Path, None] = {root: None}
    while names:
        name = names.popleft()
        if name == "..":
            here = here if here == root else here.parent  # as in the kernel, /.. is /
            continue
        folders[here] = None
        try:
            target = Path(os.readlink(here / name))
        except OSError:  # it is no link, or not there
            here = here / name
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        if target.is_absolute():
            here = root
        names.extendleft(reversed([part for part in target.parts if part != "/"]))
    return FollowedPath(tuple(folders), here)


def fault_of(path: Path, status: os.stat_result, owner: int) -> Fault | None:
    """Return why others than ``owner`` (a uid) can change this file or folder, or None."""
    kind = "folder" if stat.S_ISDIR(status.st_mode) else "file"
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid != owner:
        return Fault(
            path,
            f"this {kind} belongs to uid {status.st_uid}, expected uid {owner}",
            found=str(status.st_uid),
            allowed=f"uid {owner}",
            remedy=f"chown the {kind} to uid {owner}",
        )
    if mode & _WRITABLE_BY_OTHERS:
        return Fault(
            path,
            f"this {kind} has mode {mode:04o}, expected none but its owner to have write access",
            found=f"{mode:04o}",
            allowed=f"{mode & ~_WRITABLE_BY_OTHERS:04o}",
            remedy=None if mode & stat.S_ISVTX else "chmod go-w",
        )
    return None


def fault_on_way(
    path: Path, owner: int, *, root: Path = ROOT, top: Path = ROOT, end: bool = True
) -> Fault | None:
    """Return why others than ``owner`` can change the end of an absolute path, or None.

    ``root`` is as for ``follow``. Folders above ``top`` are not checked. Without ``end`` only the
    folders on the way are judged. A name that does not exist is no fault: its folder, which is
    judged, decides who may create it. Raises OSError as ``follow`` does.
    """
    way = follow(path, root)
    taken_as_they_are = set(top.parents)
    for place in (*way.folders, way.end) if end else way.folders:
        if place in taken_as_they_are:
            continue
        try:
            fault = fault_of(place, place.lstat(), owner)
        except (FileNotFoundError, NotADirectoryError):
            continue
        if fault is not None:
            return fault
    return None


class PolicyError(UsageError):
    """A file of rules or configuration that cannot be used.

    ``file``, ``line`` (counted from 1, where known), ``place`` (the table, and a rule's name),
    ``key``, ``found`` and ``allowed`` are the parts of the message.
    """

    def __init__(
        self,
        problem: str,
        *,
        file: Path | str | None = None,
        line: int | None = None,
        place: str | None = None,
        key: str | None = None,
        found: str | None = None,
        allowed: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.file = None if file is None else printable(file)
        self.line = line
        self.place = place
        self.key = key
        self.found = found
        self.allowed = allowed
        parts = [
            self.file,
            None if line is None else f"line {line}",
            place,
            None if key is None else f"key `{key}`",
            problem,
        ]
        super().__init__(": ".join(part for part in parts if part), hint=hint)


def printable(name: Path | str) -> str:
    """Return a file's name as text without bytes that a terminal would obey or choke on."""
    text = os.fsencode(name).decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def quoted(value: object) -> str:
    """Return a value from a file as short ASCII text, strings in double quotes."""
    if isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, int):
        # Python refuses to print integers of more than 4,300 digits (ValueError).
        text = str(value) if value.bit_length() < 256 else "a very large integer"
    elif isinstance(value, str):
        import json  # only mistakes are quoted

        text = json.dumps(value[: 2 * _LONGEST])
    elif isinstance(value, list):
        text = "[" + ", ".join(quoted(item) for item in value[:8]) + "]"
    elif isinstance(value, dict):
        text = "a table"
    else:
        text = str(value)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return a hint with the known word most similar to ``word``, None if none is similar."""
    from difflib import get_close_matches  # only a mistake needs it

    close = get_close_matches(word[:_LONGEST], list(known), n=1)
    return f"did you mean {quoted(close[0])}?" if close else None


LARGEST = 1 << 20  # bytes; a file of rules has a few thousand

# Only a mistake's line is searched for: re compiles them where it is.
_HEADER = r"\s*\[\[?([^\[\]]*)\]"
_AT_LINE = r"\s*\(at line (\d+), column \d+\)$"


class TomlFile(Struct, frozen=True, dict=True):
    """A parsed file with its text, so that the line of a mistake can be found.

    tomllib keeps no positions; the line is searched for in the text, and may be that of a table.
    """

    path: Path
    text: str
    data: dict[str, Any]

    @cached_property
    def _lines(self) -> list[str]:
        return self.text.split("\n")

    def line(self, steps: Sequence[str | int]) -> int | None:
        """Return the line of the value at ``steps``, as nearly as it can be found.

        ``("rule", 2, "value")`` is ``value`` in the third ``[[rule]]``. If a key is not found
        (it is missing, or in an inline table) it is the line of the table that holds it.
        """
        start, stop = 0, self._next_header(0)
        found: int | None = None
        for length in range(len(steps), 1, -1):  # a table in a table: [daemon.drift_of]
            words = [step for step in steps[:length] if isinstance(step, str)]
            if len(words) == length and self._header(".".join(words), 0) is not None:
                steps = (".".join(words), *steps[length:])
                break
        for position, step in enumerate(steps):
            if isinstance(step, int):  # was used with the name before it, to count the headers
                continue
            after = steps[position + 1] if position + 1 < len(steps) else 0
            header = self._header(step, after if isinstance(after, int) else 0)
            if position == 0 and header is not None:
                found, start = header, header + 1
                stop = self._next_header(start)
                continue
            key = self._key(step, start, stop)
            if key is None:
                break
            found, start = key, key
        return None if found is None else found + 1

    def _header(self, name: str, number: int) -> int | None:
        at = [
            row
            for row, text in enumerate(self._lines)
            if (header := re.match(_HEADER, text)) and header[1].strip() == name
        ]
        return at[number] if number < len(at) else None

    def _next_header(self, start: int) -> int:
        for number in range(start, len(self._lines)):
            if re.match(_HEADER, self._lines[number]):
                return number
        return len(self._lines)

    def _key(self, key: str, start: int, stop: int) -> int | None:
        wanted = re.compile(rf"(?:.*[\s{{,.])?[\"']?{re.escape(key)}[\"']?\s*[=.]")
        for number in range(start, stop):
            # A # within a string cuts the line short: at worst the line of the table is found.
            if wanted.match(self._lines[number].partition("#")[0]):
                return number
        return None


def read_toml(path: Path, *, top: Path = ROOT, owner: int | None = None) -> TomlFile:
    """Return the file parsed.

    With ``owner`` (a uid), only that user may have write access to the file and to each folder on
    the way to it; folders above ``top`` are not checked.
    Raises ``PolicyError`` for anything that is not a readable, small, trusted file of TOML, and
    ``FileNotFoundError`` if there is none.
    """
    return parsed(path, read_text(path, top=top, owner=owner))


def parsed(path: Path, text: str) -> TomlFile:
    """Return the file at ``path`` parsed, which has this text; ``PolicyError`` if it is no TOML."""
    import tomllib  # the shipped profiles are compiled, and a site may have no files

    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message, line = str(error), None
        if at := re.search(_AT_LINE, message):
            message, line = message[: at.start()], int(at[1])
        raise PolicyError(f"not valid TOML: {message}", file=path, line=line) from error
    except (ValueError, RecursionError) as error:  # an integer of 4,301 digits; "[" 10,000 times
        raise PolicyError("not usable TOML: a value is too large or too deep", file=path) from error
    return TomlFile(path, text, data)


def read_text(path: Path, *, top: Path = ROOT, owner: int | None = None) -> str:
    """Return the text of a file that ``read_toml`` would parse; raises as it does."""
    try:
        with loader.opened(path) as descriptor:
            if owner is not None:
                # Of the open file, not of the path: that could be replaced between check and read.
                _require_trusted(fault_of(path, os.fstat(descriptor), owner))
                _require_trusted(fault_on_way(path.absolute(), owner, top=top, end=False))
            raw = loader.beginning(descriptor, LARGEST + 1)
    except FileNotFoundError:
        raise  # whether a missing file is a mistake is for the caller to say
    except UnusableFileError as error:
        raise PolicyError(str(error), file=path) from error
    except OSError as error:
        raise PolicyError(f"cannot be read: {error.strerror}", file=path) from error
    if len(raw) > LARGEST:
        raise PolicyError(f"larger than {LARGEST} bytes, which no file of rules is", file=path)
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise PolicyError("not valid UTF-8", file=path, line=line) from error


def _require_trusted(fault: Fault | None) -> None:
    if fault is not None:
        raise PolicyError(
            fault.problem,
            file=fault.path,
            found=fault.found,
            allowed=fault.allowed,
            hint="keep it in a folder that its owner alone can write"
            if fault.remedy is None
            else f"{fault.remedy}, after reading what it says",
        )
