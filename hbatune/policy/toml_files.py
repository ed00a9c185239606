"""Read a regular, small, UTF-8, trusted and well-formed TOML file, and locate its errors.

Every problem of a file raises ``PolicyError``, with file, line and key if known.

The trust check is the same for the site's files and for programs that a root unit starts: only the
owner can change the path. All parent directories up to ``/`` count, also behind links. A sticky
directory such as ``/tmp`` is not trusted, because other users can create files in it.
"""

import errno
import os
import re
import stat
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from msgspec import Struct

from hbatune import loader
from hbatune.errors import UsageError

ROOT = Path("/")
_MOST_LINKS = 40  # the maximum number of links to follow (include/linux/namei.h: MAXSYMLINKS)

_LONGEST = 80


class TrustError(Exception):
    """The reason why a path is not trusted, and the remedy.

    There is no ``remedy`` for a directory shared by all users, such as ``/tmp``: trusted files must
    be in another directory.
    """

    def __init__(self, path: Path, problem: str, remedy: str | None) -> None:
        super().__init__(problem)
        self.path, self.problem, self.remedy = path, problem, remedy


class FollowedPath(Struct, frozen=True):
    """A path with all links resolved: the directories of the lookups, and the ``end``."""

    folders: tuple[Path, ...]
    end: Path


def resolve_links(path: Path, root: Path = ROOT) -> FollowedPath:
    """Resolve all links of an absolute path, for a process whose / is ``root``.

    ``path`` is relative to that root directory. A missing name is kept unchanged. Raise OSError
    (ELOOP) if links form a loop.
    """
    names = deque(path.parts[1:])
    current, links = root, 0
    folders: dict[Path, None] = {root: None}
    while names:
        name = names.popleft()
        if name == "..":
            current = current if current == root else current.parent  # as in the kernel, /.. is /
            continue
        folders[current] = None
        try:
            target = Path(os.readlink(current / name))
        except OSError:  # not a link, or missing
            current = current / name
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        if target.is_absolute():
            current = root
        names.extendleft(reversed([part for part in target.parts if part != "/"]))
    return FollowedPath(tuple(folders), current)


def find_fault(path: Path, status: os.stat_result, owner: int) -> TrustError | None:
    """Return why users other than ``owner`` (a uid) can change this path, or None."""
    kind = "folder" if stat.S_ISDIR(status.st_mode) else "file"
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid != owner:
        problem = f"this {kind} belongs to uid {status.st_uid}, expected uid {owner}"
        return TrustError(path, problem, f"chown the {kind} to uid {owner}")
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        expected = "expected none but its owner to have write access"
        remedy = None if mode & stat.S_ISVTX else "chmod go-w"
        return TrustError(path, f"this {kind} has mode {mode:04o}, {expected}", remedy)
    return None


def find_fault_on_path(
    path: Path, owner: int, *, root: Path = ROOT, top: Path = ROOT, end: bool = True
) -> TrustError | None:
    """Return why users other than ``owner`` can change the end of an absolute path, or None.

    ``root`` is as for ``resolve_links``. Directories above ``top`` are not checked. Without ``end``
    only the parent directories are checked. A missing name is not a fault, because its checked
    directory determines who can create it. Raise OSError as ``resolve_links`` does.
    """
    followed = resolve_links(path, root)
    for place in (*followed.folders, followed.end) if end else followed.folders:
        if place not in top.parents:
            with suppress(FileNotFoundError, NotADirectoryError):
                if (fault := find_fault(place, place.lstat(), owner)) is not None:
                    return fault
    return None


class PolicyError(UsageError):
    """The error for an invalid rule or configuration file.

    ``line`` is counted from 1, ``place`` is the table, and a rule's name. ``reason`` is the message
    without file and line, ``remedy`` the ``hint`` for this value.
    """

    def __init__(
        self,
        problem: str,
        *,
        file: Path | str | None = None,
        line: int | None = None,
        place: str | None = None,
        key: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.file, self.line, self.remedy = file, line, hint
        reason = [place or "", "" if key is None else f"key `{key}`", problem]
        self.reason = ": ".join(filter(None, reason))
        file_text = "" if file is None else escape_name(file)
        line_text = "" if line is None else f"line {line}"
        if file is not None:
            joint = " " if hint and hint.endswith("?") else "; "
            hint = joint.join(filter(None, (hint, "`hbatune config check` shows all errors")))
        super().__init__(": ".join(filter(None, (file_text, line_text, self.reason))), hint=hint)

    @staticmethod
    @contextmanager
    def collect(errors: "list[PolicyError] | None") -> Iterator[None]:
        """Add a ``PolicyError`` that ends the block to ``errors``; without a list, raise it."""
        try:
            yield
        except PolicyError as error:
            if errors is None:
                raise
            errors.append(error)


def escape_name(name: Path | str) -> str:
    """Return a file's name as text without control characters and invalid bytes."""
    text = os.fsencode(name).decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def quote_value(value: object) -> str:
    """Return a value from a file as short ASCII text, strings in double quotes."""
    if isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, int):
        # Python refuses to print integers of more than 4,300 digits (ValueError).
        text = str(value) if value.bit_length() < 256 else "a very large integer"
    elif isinstance(value, str):
        import json  # needed only for errors

        text = json.dumps(value[: 2 * _LONGEST])
    elif isinstance(value, list):
        text = "[" + ", ".join(quote_value(item) for item in value[:8]) + "]"
    elif isinstance(value, dict):
        text = "a table"
    else:
        text = str(value)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


def suggest_nearest(name: str, candidates: Iterable[str]) -> str | None:
    """Return a hint with the candidate most similar to ``name``, or None."""
    from difflib import get_close_matches  # needed only for errors

    close = get_close_matches(name[:_LONGEST], list(candidates), n=1)
    return f"did you mean {quote_value(close[0])}?" if close else None


MAX_FILE_BYTES = 1 << 20  # bytes; a rule file has a few thousand

# Only errors need these patterns, so they are compiled on use.
_NAME = r"""(?:"[^"]*"|'[^']*'|[^\s."']+)"""
_HEADER = r"\s*\[(\[?)([^\[\]]*)\]"
_KEY = r"""((?:"[^"]*"|'[^']*'|[\w\s.-])++)="""
_AT_LINE = r"\s*\(at line (\d+), column \d+\)$"


class TomlFile(Struct, frozen=True, dict=True):
    """A parsed file with its text, in which errors are located: tomllib provides no positions."""

    path: Path
    text: str
    data: dict[str, Any]

    def line(self, steps: Sequence[str | int]) -> int | None:
        """Return the line of the value at ``steps``, or the nearest line found.

        ``("rule", 2, "value")`` is ``value`` in the third ``[[rule]]``. If a key is missing or in
        an inline table, the result is the line of its table.
        """
        for length in range(len(steps), 0, -1):
            if (line := self._lines.get(tuple(steps[:length]))) is not None:
                return line
        return None

    def split_tables(self) -> Iterator["TomlFile"]:
        """Yield a file for each ``[[table]]``, in which all lines before and after are missing."""
        lines = self.text.split("\n")
        for name, tables in self.data.items():
            for number, table in enumerate(tables if isinstance(tables, list) else ()):
                first = self._lines.get((name, number), 1) - 1
                end = self._lines.get((name, number + 1), len(lines) + 1) - 1
                text = "\n" * first + "\n".join(lines[first:end])
                yield TomlFile(self.path, text, {name: [table]})

    @cached_property
    def _lines(self) -> dict[tuple[str | int, ...], int]:
        """The line of each table and of each key at the beginning of a line, by its steps."""
        lines, sizes = dict[tuple[str | int, ...], int](), Counter[tuple[str | int, ...]]()
        table: tuple[str | int, ...] = ()
        for number, text in enumerate(self.text.split("\n"), 1):
            if (header := re.match(_HEADER, text)) is not None:
                table = ()
                for name in _split_key(header[2]):
                    if sizes[table]:  # a table in the last element of an array
                        table += (sizes[table] - 1,)
                    table += (name,)
                    lines.setdefault(table, number)
                if header[1]:
                    sizes[table] += 1
                    table += (sizes[table] - 1,)
                    lines[table] = number
            elif (key := re.match(_KEY, text)) is not None:
                steps = table
                for name in _split_key(key[1]):
                    steps += (name,)
                    lines.setdefault(steps, number)
        return lines


def _split_key(text: str) -> list[str]:
    return [name.strip("\"'") for name in re.findall(_NAME, text)]


def read_toml(path: Path, *, top: Path = ROOT, owner: int | None = None) -> TomlFile:
    """Return the parsed file.

    With ``owner`` (a uid), only that user may have write access to the file and its parent
    directories. Directories above ``top`` are not checked. Raise ``PolicyError`` unless the file is
    readable, small, trusted and valid TOML, and ``FileNotFoundError`` if it is missing.
    """
    text = _read_text(path, top, owner)
    import tomllib  # slow to import, and many commands read no file of rules

    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message, line = str(error), None
        if match := re.search(_AT_LINE, message):
            message, line = message[: match.start()], int(match[1])
        elif message.endswith("end of document)"):
            line = text.rstrip("\n").count("\n") + 1
        raise PolicyError(f"not valid TOML: {message}", file=path, line=line) from error
    except (ValueError, RecursionError) as error:  # an integer of 4,301 digits; "[" 10,000 times
        raise PolicyError("not usable TOML: a value is too large or too deep", file=path) from error
    return TomlFile(path, text, data)


def _read_text(path: Path, top: Path, owner: int | None) -> str:
    try:
        with loader.open_file(path) as descriptor:
            if owner is not None:
                # Check the open file, since the path could be replaced between check and read.
                fault = find_fault(path, os.fstat(descriptor), owner)
                fault = fault or find_fault_on_path(path.absolute(), owner, top=top, end=False)
                if fault is not None:
                    hint = "keep it in a directory that only its owner can write"
                    if fault.remedy is not None:
                        hint = f"{fault.remedy}, after checking its contents"
                    raise PolicyError(fault.problem, file=fault.path, hint=hint)
            raw = loader.read_beginning(descriptor, MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise  # the caller decides whether a missing file is an error
    except loader.UnusableFileError as error:
        raise PolicyError(str(error), file=path) from error
    except OSError as error:
        raise PolicyError(f"cannot be read: {error.strerror}", file=path) from error
    if len(raw) > MAX_FILE_BYTES:
        problem = f"larger than {MAX_FILE_BYTES} bytes, which no file of rules is"
        raise PolicyError(problem, file=path)
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise PolicyError("not valid UTF-8", file=path, line=line) from error
