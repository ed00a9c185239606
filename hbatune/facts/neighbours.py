"""Other tools on the machine that change hbatune's settings, or can measure their effect."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress

from hbatune.facts.health import UdevRule
from hbatune.facts.ids import escape
from hbatune.facts.model import Missing, Reason

DAEMONS = ("irqbalance", "tuned")
TOOLS = ("bpftrace", "fio")

# In the order of precedence: of files with the same name the first is used (udev(7)).
_FOLDERS = ("/etc/udev/rules.d", "/run/udev/rules.d", "/usr/lib/udev/rules.d", "/lib/udev/rules.d")
_ASSIGNED = re.compile(r'\bATTR\{([^}"]*)\}\s*:?=(?!=)\s*"((?:[^"\\]|\\.)*)"')
_RUN = re.compile(r'\b(?:RUN|PROGRAM)(?:\{\w+\})?\s*(?:\+|:)?=(?!=)\s*"((?:[^"\\]|\\.)*)"')
_WRITTEN = re.compile(r">\s*\S*?((?:queue|device)/\w+)")
_OURS = re.compile(r"\bhbatune\b")
_LARGEST = 1 << 20


def daemons() -> dict[str, bool | Missing]:
    """Return of each daemon whether it runs, by the name of its process (proc(5): comm)."""
    # With hidepid= other users' processes are invisible: that is not the same as none.
    if _comm("1") is None:
        hidden = Missing(
            Reason.UNREADABLE, text="the processes of others are hidden from this user"
        )
        return dict.fromkeys(DAEMONS, hidden)
    running = {_comm(entry) for entry in os.listdir("/proc") if entry.isdecimal()}
    return {name: name in running for name in DAEMONS}


def tools() -> dict[str, bool]:
    """Return of each program whether it is installed, in the user's path or in root's."""
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin:/usr/bin"
    return {name: shutil.which(name, path=path) is not None for name in TOOLS}


def udev_rules() -> tuple[UdevRule, ...]:
    """Return the lines of the machine's udev rules that set attributes, hbatune's own left out."""
    files: dict[str, str] = {}
    for folder in _FOLDERS:
        with suppress(OSError):
            for name in sorted(os.listdir(folder)):
                if name.endswith(".rules"):
                    files.setdefault(name, f"{folder}/{name}")
    return tuple(
        rule
        for name in sorted(files)
        if not _OURS.search(name)
        for rule in assignments(files[name], _text(files[name]))
    )


def assignments(file: str, text: str) -> Iterator[UdevRule]:
    """Yield the attributes that rules set, directly or through a shell; lines may be continued."""
    for number, line in _lines(text):
        for attribute, value in _ASSIGNED.findall(line):
            yield UdevRule(escape(file), number, escape(attribute), escape(value))
        for program in _RUN.findall(line):
            for attribute in _WRITTEN.findall(program):
                yield UdevRule(escape(file), number, escape(attribute), None)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each rule with the number of its first line."""
    start = 1
    parts: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not parts:
            start = number
        # A comment within a continued rule is skipped, and does not end it.
        if line.lstrip().startswith("#"):
            continue
        parts.append(line.removesuffix("\\"))
        if not line.endswith("\\"):
            yield start, "".join(parts)
            parts = []
    if parts:
        yield start, "".join(parts)


def _text(path: str) -> str:
    with suppress(OSError), open(path, "rb") as file:
        return file.read(_LARGEST).decode("utf-8", "backslashreplace")
    return ""


def _comm(process: str) -> str | None:
    with suppress(OSError), open(f"/proc/{process}/comm", "rb") as file:
        return file.read().decode("utf-8", "backslashreplace").strip()
    return None
