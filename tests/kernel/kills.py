"""Kills real commands with SIGKILL at random system calls, and checks that a rollback restores all.

A command and its workers run in forks of this process under ptrace(2). Each stop before and after a
system call counts, in all of these processes; at the chosen one the command is killed, and its
workers die with it. The disks are modelled in a separate process that takes the writes: as in the
kernel, a write happens completely or not at all, wherever its writer is killed.
"""

import contextlib
import errno
import os
import random
import select
import shutil
import signal
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from hbatune.cli import main
from hbatune.settings.table import SETTINGS, Value, find_setting
from tests.kernel.model import By
from tests.kernel.ptrace import Ended, Run, Watcher
from tests.kernel.seams import World, installed, placed
from tests.kernel.tree import Tree

PROFILES: dict[str, dict[str, int | str]] = {
    "one": {"scheduler": "none", "queue_depth": 128, "rq_affinity": 2, "read_ahead_kb": 512},
    "two": {"scheduler": "kyber", "nr_requests": 1024, "queue_depth": 96, "nomerges": 1},
}
APPLY = ("apply", "--no-probe", "--json", "--profile")
SET_BY_PROFILES = sorted({setting for profile in PROFILES.values() for setting in profile})
"""The settings of all profiles."""
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
        count = self.store("", "")
        assert count is not None
        return count

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
        place = tree.disk_of(path)
        tree.writes.clear()
        tree.changes.clear()
        return errno.ENOENT if place is None else tree.write(*place, text, By.HBATUNE)


def kill(count: int, seed: int) -> Killings:
    """Kill commands at ``count`` random system calls, the scenarios in turn."""
    with described() as world:
        load(world)
    with described() as world:
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
def described() -> Iterator[World]:
    """Make a world with two profiles, ``PROFILES``, in memory if possible."""
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
        self._before = values(self._world.tree)

    def kill(self, count: int) -> Killings:
        for name, (before, command) in SCENARIOS.items():
            self._run(before)
            # A run without a kill counts the system calls from which the kill is then chosen.
            self._found.calls[name] = self._traced(command, at=None)[1]
            self._restore(f"{name}, not killed")
        for number in range(count):
            name, (before, command) = list(SCENARIOS.items())[number % len(SCENARIOS)]
            self._run(before)
            at = self._chance.randint(1, self._found.calls[name])
            ended, _ = self._traced(command, at)
            self._found.counts[f"{name}: {'killed' if ended.killed else 'ended before'}"] += 1
            self._restore(f"seed {self._seed}, kill {number}: {name} at {at}")
        if self._disks.shrinks():
            self._found.problems.append("a tag set has shrunk")
        return self._found

    def _run(self, before: tuple[tuple[str, ...], ...]) -> None:
        for words in before:
            done = _command(words).wait()
            if done.code != 0:
                self._found.problems.append(f"{words}: {done}")

    def _traced(self, words: tuple[str, ...], at: int | None) -> tuple[Ended, int]:
        run, count = _command(words, traced=True), _Count(at)
        count.pid = run.pid
        ended = run.trace(count)
        self._disks.shrinks()  # answered after all writes sent before: they are in the files now
        return ended, count.calls

    def _restore(self, where: str) -> None:
        """Roll back, and check that each value is its first one again or named in a row."""
        done = _command(("rollback", "--json")).wait()
        if done.code not in (0, 1) or "Traceback" in done.err or not done.out.startswith("{"):
            self._found.problems.append(f"{where}: rollback: {done}")
            return
        rows: list[dict[str, Any]] = msgspec.json.decode(done.out)["rows"]
        named = {
            (row["target"], row["setting"])
            for row in rows
            if row["outcome"] not in ("kept", "written")
        }
        current_values = values(self._world.tree)
        for key, value in self._before.items():
            if current_values.get(key) != value and key not in named:
                self._found.problems.append(
                    f"{where}: {key} is {current_values.get(key)}, was {value}"
                )
        if done.code == 0 and named:
            self._found.problems.append(f"{where}: exit 0, and {named} are not back")
        self._found.counts["restored" if current_values == self._before else "named"] += 1


def _command(words: tuple[str, ...], *, traced: bool = False) -> Run:
    return Run(lambda: main(list(words)), traced=traced)


class _Count(Watcher):
    """Counts the stops at system calls, and kills the command at the chosen one."""

    def __init__(self, at: int | None) -> None:
        self.calls = 0
        self.pid = 0
        self._at = at

    def stopped(self, pid: int) -> bool:
        self.calls += 1
        if self.calls == self._at:
            os.kill(self.pid, signal.SIGKILL)
        return True


def values(tree: Tree) -> dict[tuple[str, str], Value]:
    """Return all values of all disks by target and setting, read from the files."""
    parsed_values: dict[tuple[str, str], Value] = {}
    for name, disk in tree.places.items():
        directory = tree.directory(name)
        files = [*directory.glob("queue/*"), *directory.glob("queue/iosched/*")]
        for file in [*files, directory / "device/queue_depth"]:
            path = str(file.relative_to(directory))
            setting = _BY_PATH.get(path, path if "iosched/" in path else None)
            if setting and file.is_file() and (disk.can_queue or "depth" not in path):
                parsed_values[name, setting] = find_setting(setting).format.parse(
                    file.read_text().strip()
                )
    return parsed_values


_BY_PATH = {path: setting.name for setting in SETTINGS.values() for path in setting.paths}


def _write_rules(world: World) -> None:
    for name, wanted in PROFILES.items():
        lines = [f'title = "{name}"', *_rules(wanted)]
        (world.root / f"etc/profiles/{name}.toml").write_text("\n".join(lines) + "\n")
    (world.root / "rules/sources.toml").write_text(
        '[document.K]\ntitle = "kernel"\n[source.K-1]\ndocument = "K"\nsection = "s"\nsays = "x"\n'
    )
    (world.root / "rules/arrays.toml").write_text("array = []\n")
    (world.root / "rules/yardsticks.toml").write_text("")


def _rules(wanted: dict[str, int | str]) -> Iterator[str]:
    for name, value in wanted.items():
        text = f'"{value}"' if isinstance(value, str) else str(value)
        yield f'[[rule]]\nname = "{name}"\nsetting = "{name}"\nvalue = {text}'
        yield 'because = "a test"\nsource = "site"'
