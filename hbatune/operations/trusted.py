"""Checks that only root can change what a root unit starts or writes to, here or in an image."""

import os
import shlex
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from hbatune.errors import UsageError
from hbatune.policy.trust import ROOT, Fault, fault_on_way, follow

_ROOT_USER = 0
_NESTED = 5
"""Scripts whose interpreter is a script again (fs/exec.c: exec_binprm allows five)."""
_HEAD = 4096
"""Bytes at the start of a script in which its interpreter is looked for."""
_SEARCHED = tuple(map(Path, ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin")))
"""Where systemd looks for programs (systemd.exec(5): $PATH)."""
_LONG = "'''exec'"
"""Begins the second line of pip's scripts whose interpreter has a long path, or blanks in it."""


def require_trusted_command(command: Path, root: Path = ROOT) -> None:
    """UsageError unless only root can change the command and its interpreters, below ``root``.

    For this system's own command, the Python package that it runs is checked as well.
    """
    _require(_commands(command, root, _NESTED), root)
    if root == ROOT:
        _require([Path(__file__).parents[1]], root)


def require_trusted_folder(folder: Path, root: Path = ROOT) -> None:
    """UsageError unless only root can replace this folder by another one.

    The folder itself may be another user's.
    """
    _require([folder], root, end=False)


def _require(paths: Iterable[Path], root: Path, *, end: bool = True) -> None:
    # An image may be built without being root: its builder's files will be root's there.
    owner = _ROOT_USER if root == ROOT else os.geteuid()
    for path in paths:
        try:
            fault = fault_on_way(path, owner, root=root, top=root, end=end)
        except OSError as error:
            raise UsageError(f"{path} cannot be followed: {error.strerror}") from error
        if fault is not None:
            raise UsageError(_problem(path, fault), hint=_hint(fault))


def _problem(path: Path, fault: Fault) -> str:
    way = f" (on the way to {path})" if fault.path != path else ""
    return f"{fault.path}{way} is not root's alone: {fault.problem}"


def _hint(fault: Fault) -> str:
    return (
        f"a unit of root's would depend on it: {fault.remedy} {fault.path}, after a look at what "
        "is there, or choose a place that root alone can write"
    )


def _commands(command: Path, root: Path, nested: int) -> Iterator[Path]:
    """Yield the command and the interpreters that it names."""
    yield command
    if nested:
        for interpreter in _interpreters(follow(command, root).end, root):
            yield from _commands(interpreter, root, nested - 1)


def _interpreters(script: Path, root: Path) -> Iterator[Path]:
    """Yield the interpreters in the first lines of a script; none where it is no script."""
    try:
        with open(script, "rb") as file:
            lines = file.read(_HEAD).decode(errors="replace").split("\n")
    except OSError:  # missing or unreadable: its path is judged all the same
        return
    if not lines[0].startswith("#!"):
        return
    words = lines[0].removeprefix("#!").split()
    if words and words[0].startswith("/"):
        yield Path(words[0])
        if Path(words[0]).name == "env":
            yield from _found(words[1:], root)
    if len(lines) > 1 and lines[1].startswith(_LONG):
        with suppress(ValueError):  # quotes that do not end
            word = shlex.split(lines[1].removeprefix(_LONG))[0]
            yield Path(word)


def _found(words: Iterable[str], root: Path) -> Iterator[Path]:
    """Yield the programs that env(1) may start: the first word that is no option or assignment."""
    name = next((word for word in words if not word.startswith("-") and "=" not in word), None)
    if name is not None:
        places = [Path(name)] if name.startswith("/") else [each / name for each in _SEARCHED]
        yield from (each for each in places if os.access(follow(each, root).end, os.X_OK))
