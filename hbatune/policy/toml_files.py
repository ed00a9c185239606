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
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from msgspec import Struct

from hbatune import loader
from hbatune.errors import UsageError
from hbatune.loader import UnusableFileError

ROOT = Path("/")
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
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
    if mode & _WRITABLE_BY_OTHERS:
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
    unchecked = set(top.parents)
    for place in (*followed.folders, followed.end) if end else followed.folders:
        if place in unchecked:
            continue
        try:
            fault = find_fault(place, place.lstat(), owner)
        except (FileNotFoundError, NotADirectoryError):
            continue
        if fault is not None:
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
        position = [
            "" if file is None else escape_name(file),
            "" if line is None else f"line {line}",
        ]
        if file is not None:
            joint = " " if hint and hint.endswith("?") else "; "
            hint = joint.join(filter(None, (hint, "`hbatune config check` shows all errors")))
        super().__init__(": ".join(filter(None, (*position, self.reason))), hint=hint)

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
_HEADER = r"\s*\[\[?([^\[\]]*)\]"
_AT_LINE = r"\s*\(at line (\d+), column \d+\)$"


class TomlFile(Struct, frozen=True, dict=True):
    """A parsed file with its text, which is searched for the line of an error.

    tomllib provides no positions. The result may be the line of the table.
    """

    path: Path
    text: str
    data: dict[str, Any]

    @cached_property
    def _lines(self) -> list[str]:
        return self.text.split("\n")

    def line(self, steps: Sequence[str | int]) -> int | None:
        """Return the line of the value at ``steps``, or the nearest line found.

        ``("rule", 2, "value")`` is ``value`` in the third ``[[rule]]``. If a key is missing or in
        an inline table, the result is the line of its table.
        """
        start, stop = 0, self._find_next_header(0)
        row: int | None = None
        for length in range(len(steps), 1, -1):  # a table in a table: [daemon.drift_of]
            words = [step for step in steps[:length] if isinstance(step, str)]
            if len(words) == length and self._find_header(".".join(words), 0) is not None:
                steps = (".".join(words), *steps[length:])
                break
        for position, step in enumerate(steps):
            if isinstance(step, int):  # used with the preceding name, to count the headers
                continue
            next_step = steps[position + 1] if position + 1 < len(steps) else 0
            header = self._find_header(step, next_step if isinstance(next_step, int) else 0)
            if position == 0 and header is not None:
                row, start = header, header + 1
                stop = self._find_next_header(start)
                continue
            key = self._find_key(step, start, stop)
            if key is None:
                break
            row, start = key, key
        return None if row is None else row + 1

    def split_tables(self) -> Iterator["TomlFile"]:
        """Yield a file for each ``[[table]]``, in which all other lines are empty."""
        for name, tables in self.data.items():
            for number, table in enumerate(tables if isinstance(tables, list) else ()):
                text, header = self.text, self._find_header(name, number)
                if header is not None:
                    stop = self._find_header(name, number + 1) or len(self._lines)
                    text = "\n" * header + "\n".join(self._lines[header:stop])
                yield TomlFile(self.path, text, {name: [table]})

    @cached_property
    def _headers(self) -> dict[int, str]:
        """The names of tables by the number of their line, starting at 0."""
        headers = {}
        for row, text in enumerate(self._lines):
            if header := re.match(_HEADER, text):
                headers[row] = header[1].strip()
        return headers

    def _find_header(self, name: str, number: int) -> int | None:
        rows = [row for row, header in self._headers.items() if header == name]
        return rows[number] if number < len(rows) else None

    def _find_next_header(self, start: int) -> int:
        return min((row for row in self._headers if row >= start), default=len(self._lines))

    def _find_key(self, key: str, start: int, stop: int) -> int | None:
        wanted = re.compile(rf"(?:.*[\s{{,.])?[\"']?{re.escape(key)}[\"']?\s*[=.]")
        for number in range(start, stop):
            # A # within a string truncates the line. Then the result is the line of the table.
            if wanted.match(self._lines[number].partition("#")[0]):
                return number
        return None


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
                _require_trusted(find_fault(path, os.fstat(descriptor), owner))
                _require_trusted(find_fault_on_path(path.absolute(), owner, top=top, end=False))
            raw = loader.read_beginning(descriptor, MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise  # the caller decides whether a missing file is an error
    except UnusableFileError as error:
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


def _require_trusted(fault: TrustError | None) -> None:
    if fault is None:
        return
    hint = "keep it in a directory that only its owner can write"
    if fault.remedy is not None:
        hint = f"{fault.remedy}, after checking its contents"
    raise PolicyError(fault.problem, file=fault.path, hint=hint)
