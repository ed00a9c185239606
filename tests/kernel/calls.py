"""The system calls that may be failed: their names, their targets, and the ways in which they fail.

A call counts if its target is a file below the root of a described machine, a pipe, or a process.
Its name and its target are the same in each run: process ids and random names are replaced.
"""

import errno
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tests.kernel.ptrace import Registers


class Role(StrEnum):
    """The process that makes a call."""

    COMMAND = "command"
    WORKER = "worker"
    PROGRAM = "program"  # between vfork(2) and execve(2)


@dataclass(frozen=True)
class Call:
    """A system call; ``count`` is how many equal ones the run has made before."""

    role: Role
    name: str
    target: str
    count: int = 0

    def __str__(self) -> str:
        return f"{self.role} {self.name} {self.target} #{self.count + 1}"

    @property
    def is_device(self) -> bool:
        """Whether its target is a file of a device."""
        return self.target.startswith("sys/")


HANG, LATE, SHORT = "hang", "late", "short"
"""Faults that are no errno: the call does not return; a write takes effect after the command has
ended; a write is cut short, and its repetition meets a full disk."""

PIPE = "pipe"
_AT_CWD = -100 & 0xFFFFFFFF

_PATHS = {  # by number, x86-64: the name, the argument with the directory, the one with the path
    2: ("open", None, 0),
    257: ("openat", 0, 1),
    4: ("stat", None, 0),
    6: ("lstat", None, 0),
    262: ("newfstatat", 0, 1),
    332: ("statx", 0, 1),
    21: ("access", None, 0),
    269: ("faccessat", 0, 1),
    439: ("faccessat2", 0, 1),
    89: ("readlink", None, 0),
    267: ("readlinkat", 0, 1),
    191: ("getxattr", None, 0),
    137: ("statfs", None, 0),
    82: ("rename", None, 1),
    264: ("renameat", 2, 3),
    316: ("renameat2", 2, 3),
    86: ("link", None, 1),
    265: ("linkat", 2, 3),
    88: ("symlink", None, 1),
    266: ("symlinkat", 1, 2),
    83: ("mkdir", None, 0),
    258: ("mkdirat", 0, 1),
    87: ("unlink", None, 0),
    263: ("unlinkat", 0, 1),
    84: ("rmdir", None, 0),
    90: ("chmod", None, 0),
    268: ("fchmodat", 0, 1),
    92: ("chown", None, 0),
    260: ("fchownat", 0, 1),
    280: ("utimensat", 0, 1),
    59: ("execve", None, 0),
}
_DESCRIPTORS = {
    0: "read",
    1: "write",
    3: "close",
    5: "fstat",
    17: "pread64",
    18: "pwrite64",
    72: "fcntl",
    73: "flock",
    74: "fsync",
    75: "fdatasync",
    77: "ftruncate",
    91: "fchmod",
    93: "fchown",
    217: "getdents64",
    285: "fallocate",
}
_PROCESSES = {
    22: "pipe",
    293: "pipe2",
    56: "clone",
    57: "fork",
    58: "vfork",
    435: "clone3",
    61: "wait4",
    62: "kill",
    247: "waitid",
    424: "pidfd_send_signal",
    434: "pidfd_open",
}
_NAMES = {
    **{number: name for number, (name, *_) in _PATHS.items()},
    **_DESCRIPTORS,
    **_PROCESSES,
}
NUMBERS = frozenset(_NAMES)
WRITES = ("write", "pwrite64")

_SETLK = 6
_FLAGS = {"open": 1, "openat": 2}
_VARYING = (
    (re.compile(r"^(run/\w+)/\d+"), r"\1/PID"),
    (re.compile(r"(/\.[^/]+)\.(?:[a-z0-9_]{8}|[0-9a-f]{16})$"), r"\1.RANDOM"),
    (re.compile(r"(/rollbacks/\w+)-\d+-\d+"), r"\1-UNIQUE"),
)


def call_at(pid: int, registers: Registers, role: Role, root: Path) -> Call | None:
    """Return the call at which a process is stopped, or None if it does not count."""
    number, arguments = registers.number, registers.arguments
    if number in _PROCESSES:
        return Call(role, _PROCESSES[number], "process")
    if number in _PATHS:
        name, directory, path = _PATHS[number]
        text = registers.text_at(arguments[path])
        if not text:  # AT_EMPTY_PATH
            text = _of_descriptor(pid, arguments[directory or 0])
        elif directory is not None and not text.startswith("/"):
            base = arguments[directory] & 0xFFFFFFFF
            text = f"{_of_descriptor(pid, base)}/{text}" if base != _AT_CWD else text
        if name in _FLAGS:
            name = f"open({_mode(arguments[_FLAGS[name]])})"
    else:
        name, text = _DESCRIPTORS[number], _of_descriptor(pid, arguments[0])
        if name == "fcntl":
            if arguments[1] != _SETLK:
                return None
            name = "lock"
        if text.startswith("pipe:"):
            return Call(role, name, PIPE)
    target = _normal(text, f"{root}/")
    return None if target is None else Call(role, name, target)


def find_numbers(*names: str) -> frozenset[int]:
    """Return the numbers of the system calls of which a ``Call`` has one of these names."""
    called = {"fcntl" if name == "lock" else name.partition("(")[0] for name in names}
    if "open" in called:
        called.add("openat")
    return frozenset(number for number, name in _NAMES.items() if name in called)


def faults(call: Call) -> Iterator[str]:
    """Yield the ways in which a call can really fail, as names of errnos and other faults."""
    errnos = _DEVICE if call.is_device else _FILE
    if call.target == PIPE:
        # The kernel refuses none of these; a worker that is stopped does not answer.
        if call.role is Role.WORKER and call.name in ("read", "write"):
            yield HANG
        return
    yield from errnos.get(call.name, ())
    if call.role is Role.PROGRAM and call.name == "execve":
        yield HANG
    if call.role is not Role.WORKER or call.name == "close":
        return
    if call.is_device and call.name not in ("read", "pread64", *WRITES):
        return  # opening an attribute takes no lock of the device
    if call.name in errnos:
        yield HANG
    if call.is_device and call.name in WRITES:
        yield LATE


_FULL = ("ENOSPC", "EROFS", "EIO")
_PROCESS_FAULTS = {
    **dict.fromkeys(("pipe", "pipe2", "pidfd_open"), ("EMFILE",)),
    **dict.fromkeys(("clone", "fork", "vfork", "clone3"), ("EAGAIN",)),
    "execve": ("EAGAIN", "EIO"),
}
_FILE: dict[str, tuple[str, ...]] = {
    **_PROCESS_FAULTS,
    "open(read)": ("EIO", "EMFILE"),
    "open(write)": ("EROFS", "EIO", "EMFILE"),
    "open(create)": (*_FULL, "EMFILE"),
    "lock": ("EAGAIN",),
    **dict.fromkeys(("read", "pread64", "getdents64", "close"), ("EIO",)),
    **dict.fromkeys(("stat", "lstat", "newfstatat", "statx", "fstat", "statfs"), ("EIO",)),
    **dict.fromkeys(("access", "faccessat", "faccessat2", "getxattr"), ("EIO",)),
    **dict.fromkeys(("readlink", "readlinkat"), ("EIO",)),
    **dict.fromkeys(WRITES, (*_FULL, SHORT)),
    **dict.fromkeys(("fsync", "fdatasync", "ftruncate", "fallocate"), _FULL),
    **dict.fromkeys(("rename", "renameat", "renameat2", "mkdir", "mkdirat"), _FULL),
    **dict.fromkeys(("link", "linkat", "symlink", "symlinkat"), _FULL),
    **dict.fromkeys(("unlink", "unlinkat", "rmdir"), ("EROFS", "EIO")),
    **dict.fromkeys(("chmod", "fchmod", "fchmodat"), ("EROFS", "EIO")),
    **dict.fromkeys(("chown", "fchown", "fchownat", "utimensat"), ("EROFS", "EIO")),
}
# sysfs: names are looked up in memory, attributes answer as their driver does.
_DEVICE: dict[str, tuple[str, ...]] = {
    "open(read)": ("EMFILE",),
    "open(write)": ("EROFS", "EMFILE"),
    **dict.fromkeys(("read", "pread64"), ("EIO",)),
    **dict.fromkeys(WRITES, ("EIO",)),
}


def result_of(fault: str) -> int:
    """Return the result of a call that fails with this errno."""
    number = getattr(errno, fault)
    assert isinstance(number, int)
    return -number


def _of_descriptor(pid: int, descriptor: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/fd/{descriptor & 0xFFFFFFFF}")
    except OSError:
        return ""


def _mode(flags: int) -> str:
    if flags & os.O_CREAT:
        return "create"
    return "read" if flags & os.O_ACCMODE == os.O_RDONLY else "write"


def _normal(path: str, root: str) -> str | None:
    """Return a path below the root, the same in each run; None if it is elsewhere."""
    if path.startswith("/proc/") and path.endswith("/stat") and path != "/proc/stat":
        return "process"
    if not path.startswith(root):
        return None
    relative = path[len(root) :].removesuffix(" (deleted)")
    for pattern, text in _VARYING:
        relative = pattern.sub(text, relative)
    return relative
