"""Kills real commands with SIGKILL at random system calls, and checks that a rollback restores all.

A command and its workers run in forks of this process under ptrace(2). Each stop before and after a
system call counts, in all of these processes; at the chosen one the command is killed, and its
workers die with it. The disks are modelled in a separate process that takes the writes: as in the
kernel, a write happens completely or not at all, wherever its writer is killed.
"""

import contextlib
import ctypes
import errno
import os
import random
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from hbatune.cli import main
from hbatune.settings.table import SETTINGS, Value, setting
from tests.kernel.model import By
from tests.kernel.seams import World, installed, placed
from tests.kernel.tree import Tree

_TRACEME, _SYSCALL, _SETOPTIONS = 0, 24, 0x4200  # sys/ptrace.h
_SYSGOOD, _FORK, _VFORK, _CLONE, _EXITKILL = 1, 2, 4, 8, 1 << 20
_OPTIONS = _SYSGOOD | _FORK | _VFORK | _CLONE | _EXITKILL
_SYSCALL_STOP = signal.SIGTRAP | 0x80
_WALL = 0x40000000
_LONGEST = 60.0  # seconds for one command

_ptrace = ctypes.CDLL(None, use_errno=True).ptrace
_ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_BY_PATH = {each.path: each.name for each in SETTINGS.values()}

PROFILES: dict[str, dict[str, int | str]] = {
    "one": {"scheduler": "none", "queue_depth": 128, "rq_affinity": 2, "read_ahead_kb": 512},
    "two": {"scheduler": "kyber", "nr_requests": 1024, "queue_depth": 96, "nomerges": 1},
}
APPLY = ("apply", "--no-probe", "--json", "--profile")
SCENARIOS = {
    "apply": ((), (*APPLY, "one")),
    "rollback": (((*APPLY, "two"),), ("rollback",)),
    "switch": (((*APPLY, "two"),), (*APPLY, "one")),
}
"""By name: the commands run before, and the command that is killed."""


@dataclass
class Killings:
    """The results of all kills: how often each one occurred, and the problems found."""

    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    calls: dict[str, int] = field(default_factory=dict)


class Disks:
    """The process with the modelled disks; ``store`` is a write(2) to one of their files."""

    def __init__(self, tree: Tree) -> None:
        self._address = f"\0hbatune-disks-{os.getpid()}-{time.monotonic_ns()}"
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listening.bind(self._address)
        listening.listen(64)
        watched, self._open = os.pipe()
        # A grandchild: the tracer waits for all of its children, and would wait for this one, too.
        between = os.fork()
        if between == 0:
            if os.fork() == 0:
                os.close(self._open)
                self._serve(listening, watched, tree)
            os._exit(0)
        os.waitpid(between, 0)
        os.close(watched)
        listening.close()

    def store(self, path: str, text: str) -> int | None:
        """Take a write as ``act.chain._store`` does."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
            asking.connect(self._address)
            asking.send(f"{path}\0{text}".encode())
            return msgspec.json.decode(asking.recv(64), type=int | None)

    def shrinks(self) -> int:
        """Return how many writes have shrunk a tag set, after all earlier writes are done."""
        found = self.store("", "")
        assert found is not None
        return found

    def close(self) -> None:
        """End the process; it also ends when this one dies."""
        os.close(self._open)

    def _serve(self, listening: socket.socket, watched: int, tree: Tree) -> None:
        poll = select.poll()
        poll.register(listening, select.POLLIN)
        poll.register(watched, select.POLLHUP)
        while watched not in [descriptor for descriptor, _ in poll.poll()]:
            asking, _ = listening.accept()
            with asking, contextlib.suppress(OSError):
                request = asking.recv(4096).decode()
                if request:
                    answer = self._take(tree, *request.split("\0"))
                    asking.send(msgspec.json.encode(answer), socket.MSG_NOSIGNAL)

    def _take(self, tree: Tree, path: str, text: str) -> int | None:
        if not path:
            return len(tree.shrinks)
        found = tree.disk_of(path)
        tree.writes.clear()
        tree.changes.clear()
        return errno.ENOENT if found is None else tree.write(*found, text, By.HBATUNE)


def kill(count: int, seed: int) -> Killings:
    """Kill commands at ``count`` random system calls, the scenarios in turn."""
    with _world() as world:
        load(world)
    with _world() as world:
        disks = Disks(world.tree)
        try:
            with placed(world, disks.store):
                return _Killer(world, disks, seed).kill(count)
        finally:
            disks.close()


def load(world: World) -> None:
    """Run each command once, so that all code is loaded: forks then make no calls for imports."""
    with installed(world):
        for before, command in SCENARIOS.values():
            for words in (*before, command, ("rollback", "--json")):
                ended = world.run(*words)
                assert ended.code == 0, ended


@contextlib.contextmanager
def _world() -> Iterator[World]:
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="hbatune-", dir=memory if memory.is_dir() else None))
    try:
        world = World(folder, "6.1")
        _write_rules(world)
        yield world
    finally:
        shutil.rmtree(folder)


class _Killer:
    def __init__(self, world: World, disks: Disks, seed: int) -> None:
        self._world, self._disks, self._seed = world, disks, seed
        self._chance = random.Random(seed)
        self._found = Killings()
        self._before = self._values()

    def kill(self, count: int) -> Killings:
        for name, (before, command) in SCENARIOS.items():
            self._run(before)
            # A run without a kill counts the system calls from which the kill is then chosen.
            ended = self._traced(command, at=None)
            self._found.calls[name] = ended.calls
            self._restore(f"{name}, not killed")
        for number in range(count):
            name, (before, command) = list(SCENARIOS.items())[number % len(SCENARIOS)]
            self._run(before)
            at = self._chance.randint(1, self._found.calls[name])
            ended = self._traced(command, at)
            self._found.counts[f"{name}: {'killed' if ended.killed else 'ended before'}"] += 1
            self._restore(f"seed {self._seed}, kill {number}: {name} at {at}")
        if self._disks.shrinks():
            self._found.problems.append("a tag set has shrunk")
        return self._found

    def _run(self, before: tuple[tuple[str, ...], ...]) -> None:
        for words in before:
            done = _Forked(self._world, words).wait()
            if done.code != 0:
                self._found.problems.append(f"{words}: {done}")

    def _traced(self, words: tuple[str, ...], at: int | None) -> "_Ended":
        ended = _Forked(self._world, words, traced=True).trace(at)
        self._disks.shrinks()  # answered after all writes sent before: they are in the files now
        return ended

    def _restore(self, where: str) -> None:
        """Roll back, and check that each value is its first one again or named in a row."""
        done = _Forked(self._world, ("rollback", "--json")).wait()
        if done.code not in (0, 1) or "Traceback" in done.err or not done.out.startswith("{"):
            self._found.problems.append(f"{where}: rollback: {done}")
            return
        rows: list[dict[str, Any]] = msgspec.json.decode(done.out)["rows"]
        named = {
            (row["target"], row["setting"])
            for row in rows
            if row["outcome"] not in ("kept", "written")
        }
        now = self._values()
        for key, value in self._before.items():
            if now.get(key) != value and key not in named:
                self._found.problems.append(f"{where}: {key} is {now.get(key)}, was {value}")
        if done.code == 0 and named:
            self._found.problems.append(f"{where}: exit 0, and {named} are not back")
        self._found.counts["restored" if now == self._before else "named"] += 1

    def _values(self) -> dict[tuple[str, str], Value]:
        """Return all values of all disks, read from the files."""
        found: dict[tuple[str, str], Value] = {}
        tree = self._world.tree
        for name, disk in tree.places.items():
            directory = tree.directory(name)
            files = [*directory.glob("queue/*"), *directory.glob("queue/iosched/*")]
            for file in [*files, directory / "device/queue_depth"]:
                path = str(file.relative_to(directory))
                known = _BY_PATH.get(path, path if "iosched/" in path else None)
                if known and file.is_file() and (disk.can_queue or "depth" not in path):
                    found[name, known] = setting(known).parse(file.read_text().strip())
        return found


@dataclass(frozen=True)
class _Ended:
    """How a command ended and what it printed; ``calls`` are its stops at system calls."""

    code: int
    out: str = ""
    err: str = ""
    calls: int = 0

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL


class _Forked:
    """A command in a fork of this process."""

    def __init__(self, world: World, words: tuple[str, ...], *, traced: bool = False) -> None:
        self._files = [os.memfd_create(name) for name in ("out", "err")]
        self._pid = os.fork()
        if self._pid == 0:
            self._be(words, traced)

    def wait(self) -> _Ended:
        """Wait for the command to end."""
        return self._ended(os.waitpid(self._pid, 0)[1], 0)

    def trace(self, at: int | None) -> _Ended:
        """Let the command run from stop to stop, and kill it at the chosen one."""
        os.waitpid(self._pid, 0)  # its own SIGSTOP
        _ptrace(_SETOPTIONS, self._pid, None, _OPTIONS)
        _ptrace(_SYSCALL, self._pid, None, 0)
        calls, status, due = 0, 0, time.monotonic() + _LONGEST
        while True:
            try:
                pid, found = os.waitpid(-1, _WALL)
            except ChildProcessError:
                return self._ended(status, calls)
            if not os.WIFSTOPPED(found):
                if pid == self._pid:
                    status = found
                continue
            stopped_by = os.WSTOPSIG(found)
            if stopped_by == _SYSCALL_STOP:
                calls += 1
                # Past the longest time it is killed as well, so that a hang ends as a failed test.
                if calls == at or time.monotonic() > due:
                    os.kill(self._pid, signal.SIGKILL)
            # Stops of ptrace itself carry no signal; every other one is passed on to the process.
            mine = stopped_by in (_SYSCALL_STOP, signal.SIGTRAP, signal.SIGSTOP)
            _ptrace(_SYSCALL, pid, None, 0 if mine else stopped_by)

    def _be(self, words: tuple[str, ...], traced: bool) -> None:
        code = 99
        try:
            os.dup2(self._files[0], 1)
            os.dup2(self._files[1], 2)
            sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
            sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
            if traced:
                _ptrace(_TRACEME, 0, None, None)
                os.kill(os.getpid(), signal.SIGSTOP)
            code = main(list(words))
        except BaseException:  # noqa: BLE001  (this process ends here, whatever it was)
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _ended(self, status: int, calls: int) -> _Ended:
        texts = []
        for file in self._files:
            os.lseek(file, 0, os.SEEK_SET)
            with open(file, errors="replace") as stream:
                texts.append(stream.read())
        return _Ended(os.waitstatus_to_exitcode(status), texts[0], texts[1], calls)


def _write_rules(world: World) -> None:
    for name, wanted in PROFILES.items():
        lines = [f'title = "{name}"', *_rules(wanted)]
        (world.root / f"etc/profiles/{name}.toml").write_text("\n".join(lines) + "\n")
    (world.root / "rules/sources.toml").write_text(
        '[document.K]\ntitle = "kernel"\n[source.K-1]\ndocument = "K"\nsection = "s"\nsays = "x"\n'
    )
    (world.root / "rules/arrays.toml").write_text("array = []\n")


def _rules(wanted: dict[str, int | str]) -> Iterator[str]:
    for name, value in wanted.items():
        text = f'"{value}"' if isinstance(value, str) else str(value)
        yield f'[[rule]]\nname = "{name}"\nsetting = "{name}"\nvalue = {text}'
        yield 'because = "a test"\nsource = "site"'
