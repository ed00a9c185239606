"""Finds a running irqbalance, which moves interrupts every ten seconds, and its policy scripts."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

_PROC = Path("/proc")
_NAME = "irqbalance"
_PREFIX = "IRQBALANCE_"
_FILES = ("/etc/default/irqbalance", "/etc/sysconfig/irqbalance")
"""EnvironmentFile= of irqbalance's unit, on Debian and on Red Hat."""
_OPTIONS = ("--policyscript", "-l")


class Irqbalance(Struct, frozen=True):
    """A running irqbalance; ``policy`` is the script, or the folder of scripts, that it asks."""

    pid: int
    policy: str | None

    @property
    def scripts(self) -> tuple[Path, ...]:
        """The scripts that it asks, without links."""
        if self.policy is None:
            return ()
        folder = Path(self.policy)
        places = sorted(folder.iterdir()) if folder.is_dir() else [folder]
        return tuple(place.resolve() for place in places)

    def asks(self, script: Path) -> bool:
        """Whether this script is the one that it asks, or is in its folder of them."""
        return script.resolve() in self.scripts


def settings(
    proc: Path = _PROC, files: Iterable[Path] = tuple(map(Path, _FILES))
) -> dict[str, str]:
    """Return the settings in the environment of the running irqbalance, else those of its file.

    Users who may not see its environment get those of the file as well.
    """
    # Its environment comes first: the file may have been edited since it was started.
    there = running(proc)
    if there is not None:
        with suppress(OSError):
            said = (proc / str(there.pid) / "environ").read_bytes().decode(errors="replace")
            return _pairs(said.split("\0"))
    for file in files:
        with suppress(OSError):
            return _pairs(file.read_text(errors="replace").splitlines())
    return {}


def _pairs(lines: Iterable[str]) -> dict[str, str]:
    """Return names and values of lines such as ``NAME="value"``; other lines are ignored."""
    pairs = (line.strip().partition("=") for line in lines)
    return {
        name: value.strip().strip("\"'")
        for name, equals, value in pairs
        if equals and name.startswith(_PREFIX)
    }


def running(proc: Path = _PROC) -> Irqbalance | None:
    """Return the irqbalance that runs on this machine, None if there is none."""
    return next(_processes(proc), None)


def _processes(proc: Path) -> Iterator[Irqbalance]:
    for entry in sorted(os.listdir(proc)):
        with suppress(OSError):  # a process may end between the listing and the read
            if entry.isdecimal() and (proc / entry / "comm").read_text().strip() == _NAME:
                words = (proc / entry / "cmdline").read_bytes().decode(errors="replace")
                yield Irqbalance(int(entry), _policy(words.split("\0")))


def _policy(words: Sequence[str]) -> str | None:
    """Return the last policy that the words of a command name, as getopt_long(3) reads them."""
    found = None
    for word, following in zip(words, (*words[1:], ""), strict=True):
        option, equals, value = word.partition("=")
        if word in _OPTIONS:
            found = following
        elif option == _OPTIONS[0] and equals:
            found = value
        elif word.startswith("-l"):
            found = word[2:]
    return found
