"""Replaces parts of hbatune so that it runs on the model; no other module replaces any.

The parts that are replaced, and why:

- ``act.chain._store``: a write(2) to sysfs goes to the model;
- ``facts.machine.find_devices`` and ``find_related_devices`` there: the devices are the tree's,
  not udev's;
- ``workers.Pool``: work is done in this process, a task at a time;
- ``processes``: processes are the model's, so that stuck ones can be simulated, and no real
  process is ever sent a signal;
- ``policy.library.Library`` and ``act.paths``: all files lie below one folder;
- ``os.rename``, ``os.unlink`` and ``os.fsync``: boundaries at which a run may be killed;
- ``os.open``: a full disk takes no new file, while existing ones can still be written;
- all that talks to udev, irqbalance and the daemon of this machine, which are left alone.
"""

import contextlib
import errno
import io
import os
import signal
import time
from argparse import ArgumentParser
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec

from hbatune import processes
from hbatune.act import chain, interrupts, system
from hbatune.act.paths import Paths
from hbatune.cli import main, parser
from hbatune.facts import adapters, assembly, machine
from hbatune.facts.devices import Devices, Stack, list_branches
from hbatune.facts.processors import read_processors
from hbatune.facts.routes import parse_place
from hbatune.policy import library as policy_library
from hbatune.workers import Finished, Pool, Process, Replied, Stuck, worker
from tests.kernel.model import HANGS, By
from tests.kernel.tree import MAP, SLOTS, Tree

FIRST_PID = 5_000_000  # above the kernel's largest: no real process can have it
_PATHS = {name: path for name, path in vars(Paths).items() if isinstance(path, Path)}


class Killed(BaseException):
    """The run was killed.

    A BaseException, so that no handler of errors in the code under test can survive its own kill.
    """


class Hung(Exception):
    """A write did not return: its worker is stuck."""


@dataclass(frozen=True)
class Ended:
    """How a command ended. ``code`` is None where it was killed."""

    code: int | None
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The JSON document that it printed, None if there is none."""
        return msgspec.json.decode(self.out) if self.out.startswith("{") else None


class World:
    """A tree and hbatune's own files below ``root``, with hbatune running on them.

    ``full``: the disk with hbatune's state is full. ``kill_at``: how many boundaries the next run
    passes before it is killed. ``meanwhile``: an event for when the next run begins to write.
    """

    def __init__(
        self, root: Path, series: str, modules: tuple[str, ...] = ("kyber", "bfq")
    ) -> None:
        self.root = root
        self.tree = Tree(root / "sys", series, modules)
        self.full = False
        self.kill_at: int | None = None
        self.meanwhile: Callable[[], None] | None = None
        self.dead = False
        self.in_kernel = False
        self.pid = FIRST_PID  # of the run, or of its worker while that works
        self.pids = FIRST_PID
        self.alive: set[int] = set()
        self.stuck: dict[int, str] = {}
        self.boot_id = "boot-1"
        for folder in ("run", "state", "etc/profiles", "etc/rules.d", "rules"):
            (root / folder).mkdir(parents=True)
        (root / "boot_id").write_text(self.boot_id)
        (root / "meminfo").write_text("MemTotal: 67108864 kB\n")

    # -- what the run meets ----------------------------------------------------------------------

    def boundary(self) -> None:
        """Pass a point at which the run may be killed; a dead run comes no further."""
        if not self.alive or self.in_kernel:
            return
        # Code that cleans up after the kill comes here, too: nothing it does may take effect.
        if self.dead:
            raise Killed
        if self.kill_at is not None:
            self.kill_at -= 1
            if self.kill_at < 0:
                self.dead = True
                raise Killed

    def store(self, path: str, text: str) -> int | None:
        """Take a write to sysfs, as ``act.chain._store`` does."""
        self.boundary()
        place = self.tree.disk_of(path)
        if place is None:
            return errno.ENOENT
        disk, name = place
        with self._in_kernel():
            refused = self.tree.write(disk, name, text, By.HBATUNE)
        if refused == HANGS:
            self.stuck[self.pid] = disk.name
            raise Hung
        self.boundary()
        return refused

    def begins(self) -> None:
        """Let the planned event happen as the writes begin."""
        if self.meanwhile is not None:
            happen, self.meanwhile = self.meanwhile, None
            with self._in_kernel():
                happen()

    @contextlib.contextmanager
    def _in_kernel(self) -> Iterator[None]:
        """Do a part of the kernel or of others: it is complete, wherever the run is killed."""
        self.in_kernel = True
        try:
            yield
        finally:
            self.in_kernel = False

    def stat(self, pid: int) -> tuple[int, bool] | None:
        """Stand in for /proc/PID/stat: the run's own process, and those that are stuck."""
        return (pid, False) if pid in self.alive or pid in self.stuck else None

    def release(self) -> None:
        """Let every stuck write land, and its worker end."""
        for disk in self.tree.disks:
            self.tree.release(disk)
        self.stuck.clear()

    # -- running ---------------------------------------------------------------------------------

    def run(self, *words: str) -> Ended:
        """Run a command to its end, or to where it is killed."""
        out, err = io.StringIO(), io.StringIO()
        with self._process(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = self._guarded(lambda: main(list(words)))
        return Ended(code, out.getvalue(), err.getvalue())

    def call(self, work: Callable[[], bytes]) -> bytes | None:
        """Run the work of a child of the daemon; None where that was killed."""
        replies: list[bytes] = []
        with self._process():
            code = self._guarded(lambda: replies.append(work()) or 0)  # type: ignore[func-returns-value]
        return None if code is None else replies[0]

    @contextlib.contextmanager
    def _process(self) -> Iterator[None]:
        self.pid = self.new_pid()
        self.alive, self.dead = {self.pid}, False
        try:
            yield
        finally:
            self.alive, self.dead, self.kill_at, self.meanwhile = set(), False, None, None
            self._close()

    def _close(self) -> None:
        """Close the descriptors that a real process closes at its end, and with them its locks."""
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/self/fd/{name}").startswith(f"{self.root}/"):
                    os.close(int(name))

    def new_pid(self) -> int:
        """Return a process id that no process had before."""
        self.pids += 1
        return self.pids

    def _guarded(self, work: Callable[[], int]) -> int | None:
        try:
            return work()
        except Killed:
            return None
        except SystemExit as exited:
            return exited.code if isinstance(exited.code, int) else 2

    def reboot(self) -> None:
        """Boot the machine again: /run is empty, and all workers are gone."""
        self.stuck.clear()
        self.tree.power_on()
        for file in sorted((self.root / "run").rglob("*"), reverse=True):
            file.rmdir() if file.is_dir() else file.unlink()
        self.boot_id = f"boot-{self.tree.boot}"
        (self.root / "boot_id").write_text(self.boot_id)


Seam = tuple[object, str, object]


@contextlib.contextmanager
def installed(world: World) -> Iterator[None]:
    """Make hbatune run on the world, in this process, until the context ends."""
    with _replaced([*_of_files(world), *_of_processes(world)]):
        yield


@contextlib.contextmanager
def placed(world: World, store: Callable[[str, str], int | None] | None = None) -> Iterator[None]:
    """Make hbatune run on the world's files with its real workers.

    They write by ``store``; without one, to the files themselves, and systemctl and udevadm are
    programs that do nothing.
    """
    more = _of_tools(world) if store is None else [(chain, "_store", store)]
    with _replaced([*_of_files(world), *more]):
        yield


@contextlib.contextmanager
def _replaced(seams: list[Seam]) -> Iterator[None]:
    before = [(owner, name, _get(owner, name)) for owner, name, _ in seams]
    # A command installs its own handlers, which must not outlive it in the test process.
    handlers = {
        signal_number: signal.getsignal(signal_number)
        for signal_number in (signal.SIGTERM, signal.SIGHUP)
    }
    try:
        for owner, name, stand_in in seams:
            setattr(owner, name, stand_in)
        yield
    finally:
        for owner, name, original in before:
            setattr(owner, name, original)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _of_files(world: World) -> list[Seam]:
    """Return the seams by which hbatune sees the world's files."""

    def library(shipped: Path, **_: Any) -> policy_library.Library:
        stored = world.root / "state/rules"
        return _LIBRARY(world.root / "rules", site=world.root / "etc", stored=stored)

    return [
        (machine, "find_devices", lambda: _devices(world.tree)),
        (machine, "find_related_devices", lambda cached, names: _part(world.tree, names)),
        (assembly, "find_mounts", lambda stack, disks: {}),
        (assembly, "read_processors", lambda: _PROCESSORS),
        (adapters, "read_modules", lambda served: ()),
        (assembly, "_BOOT_ID", str(world.root / "boot_id")),
        (assembly, "_MEMINFO", str(world.root / "meminfo")),
        (policy_library, "Library", library),
        (interrupts, "ban_interrupts", lambda irqs, paths: None),
        (os, "geteuid", lambda: 0),
        (parser, "_make_parser", make_parser_once),
        *((Paths, name, _below(world, path)) for name, path in _PATHS.items()),
    ]


def _of_tools(world: World) -> list[Seam]:
    """Return the seams by which hbatune finds systemd's and udev's tools running."""
    tools = world.root / "tools"
    tools.mkdir(exist_ok=True)
    for name in ("systemctl", "udevadm"):
        (tools / name).write_text("#!/bin/sh\nexit 0\n")
        (tools / name).chmod(0o755)
    return [
        (system, "_BOOTED", tools),
        # Seconds: a tool that hangs passes its deadline before the harness loses patience.
        *((system, name, 2.0) for name in ("CALL_S", "STOP_S", "START_S", "SETTLE_S")),
        (system, "_is_udev_running", lambda: True),
        (os, "environ", {**os.environ, "PATH": str(tools)}),
    ]


def _below(world: World, path: Path) -> Path:
    """Return the place of one of hbatune's own paths in the world."""
    if path.is_relative_to(_PATHS["run"]):
        return world.root / "run" / path.relative_to(_PATHS["run"])
    if path.is_relative_to(_PATHS["state"]):
        return world.root / "state" / path.relative_to(_PATHS["state"])
    return world.root / "elsewhere" / path.relative_to("/")


def _of_processes(world: World) -> list[Seam]:
    """Return the seams by which hbatune works in this process, and is killed or refused."""
    pool = _inline(world)
    rename, unlink, open_file = os.rename, os.unlink, os.open

    def renamed(*arguments: Any, **options: Any) -> None:
        world.boundary()
        rename(*arguments, **options)
        world.boundary()

    def unlinked(*arguments: Any, **options: Any) -> None:
        world.boundary()
        unlink(*arguments, **options)

    def synced(descriptor: int) -> None:
        world.boundary()

    def opened(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        is_new = flags & os.O_CREAT and not os.path.exists(path)
        if world.full and is_new and Path(path).is_relative_to(world.root / "state"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return open_file(path, flags, *arguments, **options)

    return [
        (chain, "_store", world.store),
        (Pool, "start", pool.start),
        (Pool, "wait", pool.wait),
        (Pool, "prepare", lambda self, tasks: None),
        (Pool, "__exit__", lambda self, *_: pool.queue.clear()),
        (Pool, "running", property(lambda self: len(pool.queue))),
        (processes, "read_process_state", world.stat),
        (worker, "os", SimpleNamespace(**{**vars(os), "getpid": lambda: world.pid})),
        (os, "open", opened),
        (os, "rename", renamed),
        (os, "unlink", unlinked),
        (os, "fsync", synced),
        (time, "sleep", lambda seconds: None),
    ]


_LIBRARY = policy_library.Library


@cache
def _cache_parser(items: tuple[tuple[str, ModuleType | None], ...]) -> ArgumentParser:
    return _make_parser(dict(items))


_make_parser = parser._make_parser


def make_parser_once(modules: Mapping[str, ModuleType | None]) -> ArgumentParser:
    """Return the parser of these commands, made once: it takes a tenth of a sequence's time."""
    return _cache_parser(tuple(modules.items()))


_PROCESSORS = read_processors()


def _get(owner: object, name: str) -> object:
    return vars(owner)[name] if isinstance(owner, type) else getattr(owner, name)


def _inline(world: World) -> SimpleNamespace:
    """Return the methods of a pool that works in this process, one task at a time."""
    queue: deque[Any] = deque()

    def start(self: Any, task: Any) -> None:
        queue.append(task)

    def wait(self: Any) -> list[Any]:
        if not queue:
            return []
        task = queue.popleft()
        events: list[Any] = []
        run, world.pid = world.pid, world.new_pid()
        world.alive.add(world.pid)
        if isinstance(self._work, chain.ChainWriter):
            world.begins()
            self._tracker.started(Process(world.pid, world.pid), task)
        try:
            for reply in copy(self._work)(task):
                events.append(Replied(task, reply))
            events.append(Finished(task))
            if self._tracker is not None:
                self._tracker.ended(Process(world.pid, world.pid))
        except Hung:
            events.append(Stuck(task, Process(world.pid, world.pid)))
        finally:
            world.alive.discard(world.pid)
            world.pid = run
        return events

    return SimpleNamespace(queue=queue, start=start, wait=wait)


def _devices(tree: Tree) -> Devices:
    """Return the devices as sysfs would list them (``facts.devices.find_devices``)."""
    disks = {name: str(tree.directory(name)) for name in tree.places}
    places = {
        disks[slot.name]: parse_place(disks[slot.name]) for slot in SLOTS if slot.name in disks
    }
    below = tuple(slot.name for slot in SLOTS if slot.map == MAP)
    return Devices(
        disks=disks,
        places=places,
        maps={MAP: disks[MAP]},
        branches=list_branches(places),
        stack=Stack({MAP: below}, {}),
    )


def _part(tree: Tree, names: Iterable[str]) -> Devices:
    """Return the named devices, with the map and all its paths where one of them is among these."""
    all_devices, wanted = _devices(tree), set(names)
    joined = {MAP, *all_devices.stack.below[MAP]}
    if wanted & joined:
        wanted |= joined
    disks = {name: disk for name, disk in all_devices.disks.items() if name in wanted}
    places = {disk: place for disk, place in all_devices.places.items() if disk in disks.values()}
    return Devices(
        disks=disks,
        places=places,
        maps={name: map_paths for name, map_paths in all_devices.maps.items() if name in wanted},
        branches=list_branches(places),
        stack=all_devices.stack,
    )
