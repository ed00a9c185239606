"""Fails single system calls of real commands, and checks what the commands claim afterwards.

A command runs on a described machine in a fork of this process, with its real workers, all of them
under ptrace(2). This process is the kernel of the modelled disks: it takes the writes to them. A
run without a fault lists all calls to hbatune's own files, devices and processes (``calls``). Each
can then be failed once in each way in which it can really fail.

The invariants: no exit 0 unless everything that the command is for is done; each value that is not
as it should be is named; no traceback; no command waits longer than its deadlines allow; and a
rollback without a fault then restores every value.
"""

import contextlib
import os
import random
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from hbatune.act import system
from hbatune.act.paths import Paths
from hbatune.agent.orders import Order, PassReason, decode_report, encode
from hbatune.agent.work import PassMaker
from hbatune.boot import placement
from hbatune.boot.placement import Piece
from hbatune.cli import main
from hbatune.policy.config import load_configuration
from hbatune.policy.vendors import load_chosen_profile
from hbatune.settings.table import Value
from tests.kernel import calls, kills
from tests.kernel.calls import HANG, LATE, SHORT, WRITES, Call, Role
from tests.kernel.model import By
from tests.kernel.ptrace import Ended, Registers, Run, Watcher
from tests.kernel.seams import World, placed
from tests.kernel.tree import Tree

DEADLINE = 1.0
"""Seconds that hbatune waits for a worker in these runs."""
BOUND = 20.0
"""Seconds after which a command counts as hanging."""

_CONFIGURATION = "etc/hbatune.toml"
_LONG, _SHORT = "[act]\ndeadline_seconds = 10.0\n", f"[act]\ndeadline_seconds = {DEADLINE}\n"
_DRIFT = {
    "sda": {"queue/rq_affinity": "1", "device/queue_depth": "32"},
    "sdb": {"queue/scheduler": "mq-deadline"},
    "nvme0n1": {"queue/read_ahead_kb": "64"},
}

Values = dict[tuple[str, str], Value]


@dataclass(frozen=True)
class Fault:
    """A call, and how it fails."""

    call: Call
    kind: str

    def __str__(self) -> str:
        return f"{self.call}: {self.kind}"


@dataclass
class Results:
    """The results of all faults.

    ``outcomes`` counts how the commands ended, ``restored`` the values that were restored
    afterwards by a rollback without a fault. ``refused`` are the faults at which a command changed
    nothing and gave a reason; ``problems`` are the violated invariants.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    restored: int = 0
    refused: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


class Kernel(Watcher):
    """The kernel of a traced run: takes writes to the modelled disks, and fails one call.

    It counts all calls if ``counts_all``. Otherwise the run stops only at the system calls
    ``numbers``, which the fault and the writes need.
    """

    def __init__(
        self, world: World, fault: Fault | None = None, *, counts_all: bool = False
    ) -> None:
        names = () if fault is None else (fault.call.name, "kill")
        self.numbers = calls.NUMBERS if counts_all else calls.find_numbers(*names, *WRITES)
        self.calls: Counter[Call] = Counter()
        self.injected = False
        self._world, self._fault = world, fault
        self._roles: dict[int, Role] = {}
        self._answers: dict[int, int] = {}
        self._hung: set[int] = set()
        self._hangs_in_program: set[int] = set()
        self._full: str | None = None  # the file that has no more space
        self._late: tuple[str, str] | None = None

    def forked(self, parent: int, child: int, *, starts_program: bool) -> None:
        self._roles[child] = Role.PROGRAM if starts_program else Role.WORKER

    def awaits_exit(self, pid: int) -> bool:
        return pid in self._answers

    def executes(self, pid: int) -> bool | None:
        if pid in self._hangs_in_program:
            self._hung.add(pid)
            return False
        return None  # the calls of other programs are theirs

    def stopped(self, pid: int) -> bool:
        registers = Registers(pid)
        if not registers.is_entry:
            registers.answer(self._answers.pop(pid))
            return True
        role = self._roles.get(pid, Role.COMMAND)
        stopped_call = calls.call_at(pid, registers, role, self._world.root)
        if stopped_call is None:
            return True
        if stopped_call.name == "kill" and registers.arguments[0] in self._hung:
            # As for a process in an uninterruptible wait: SIGKILL has no effect.
            return self._answered(registers, 0)
        call = Call(role, stopped_call.name, stopped_call.target, self.calls[stopped_call])
        self.calls[stopped_call] += 1
        if self._fault is not None and call == self._fault.call and not self.injected:
            self.injected = True
            return self._fail(pid, registers, call, self._fault.kind)
        if call.target == self._full and call.name in WRITES:
            return self._answered(registers, calls.result_of("ENOSPC"))
        if call.is_device and call.name in WRITES:
            path, text = self._written(pid, registers)
            refused = self._write(path, text)
            return self._answered(registers, -refused if refused else len(text))
        return True

    def ended(self) -> None:
        """Let the write that was late take effect."""
        if self._late is not None:
            self._write(*self._late)

    def _fail(self, pid: int, registers: Registers, call: Call, kind: str) -> bool:
        if kind in (HANG, LATE):
            if call.name == "execve":
                # Once it has begun: before, vfork(2) has stopped its parent as well.
                self._hangs_in_program.add(pid)
                return True
            if kind == LATE:
                self._late = self._written(pid, registers)
            if call.target != calls.PIPE:  # SIGKILL ends the wait for a pipe
                self._hung.add(pid)
            return False
        if kind == SHORT:
            self._full = call.target
            registers.shorten(max(1, registers.arguments[2] // 2))
            return True
        if call.name == "close":  # Linux closes the descriptor all the same
            self._answers[pid] = calls.result_of(kind)
            return True
        return self._answered(registers, calls.result_of(kind))

    def _answered(self, registers: Registers, result: int) -> bool:
        registers.skip(result)
        return True

    def _written(self, pid: int, registers: Registers) -> tuple[str, str]:
        descriptor, address, length = registers.arguments[:3]
        path = os.readlink(f"/proc/{pid}/fd/{descriptor}")
        if path.endswith("/queue_depth"):
            # The kernel resolves the link `device`, by which hbatune has named it.
            [block] = os.listdir(f"{os.path.dirname(path)}/block")
            path = f"{os.path.dirname(path)}/block/{block}/device/queue_depth"
        return path, registers.bytes_at(address, length).decode()

    def _write(self, path: str, text: str) -> int | None:
        tree = self._world.tree
        tree.writes.clear()
        tree.changes.clear()
        place = tree.disk_of(path)
        assert place is not None, path
        return tree.write(*place, text, By.HBATUNE)


@dataclass(frozen=True)
class Scenario:
    """A command that is failed, and what runs before; ``tunes`` is whether it sets a profile."""

    before: tuple[tuple[str, ...], ...]
    command: tuple[str, ...]
    tunes: bool
    drifts: bool = False


PASS = ("pass",)
"""In place of a command: a pass of the daemon over everything."""
SCENARIOS = {
    "rollback": Scenario(((*kills.APPLY, "two"),), ("rollback", "--json"), tunes=False),
    "apply": Scenario((), (*kills.APPLY, "one"), tunes=True),
    "switch": Scenario(((*kills.APPLY, "two"),), (*kills.APPLY, "one"), tunes=True),
    "uninstall": Scenario(((*kills.APPLY, "two"),), ("uninstall",), tunes=False),
    "pass": Scenario(((*kills.APPLY, "one"),), PASS, tunes=True, drifts=True),
}
"""By name."""


class Machine:
    """A described machine on which hbatune is installed, and one scenario's command is failed."""

    def __init__(self, world: World, name: str) -> None:
        self._world, self.name, self._scenario = world, name, SCENARIOS[name]
        self._copy = world.root.with_name(f"{world.root.name}-saved")
        self._uninstalls = self._scenario.command[0] == "uninstall"
        self._first = self._values()
        self._install()
        for words in self._scenario.before:
            done = self._run(words)
            assert done.code == 0, done
        config = load_configuration()
        self._policy = config, load_chosen_profile(None, config) if config.profile else None
        if self._scenario.drifts:
            self._drift()
        self._begin = self._values()
        self._saved = self._save()
        kernel = Kernel(world, counts_all=True)
        ended = self._run(self._scenario.command, kernel)
        assert ended.code == 0, ended
        self._goal, self._files = self._values(), self._own_files()
        assert self._scenario.tunes != (self._goal == self._first)
        self.calls = [
            Call(call.role, call.name, call.target, number)
            for call, count in kernel.calls.items()
            for number in range(count)
        ]
        profiles = [name for name in kills.PROFILES if name in words_of(self._scenario)]
        self._settings = {setting for name in profiles for setting in kills.PROFILES[name]}
        self._problems: list[str] = []
        self._restored = 0

    def close(self) -> None:
        """Remove what it has saved."""
        shutil.rmtree(self._copy)

    def faults(self) -> list[Fault]:
        """Return all faults of all calls."""
        return [Fault(call, kind) for call in self.calls for kind in calls.faults(call)]

    def fail(self, faults: Iterable[Fault], results: Results) -> None:
        """Run the command with each of the faults, and check the invariants."""
        for fault in faults:
            self._problems = []
            outcome = self._failed(fault)
            results.outcomes[outcome] += 1
            results.restored += self._restored
            if outcome == "refused":
                results.refused.append(f"{self.name}: {fault}")
            results.problems += [f"{self.name}: {fault}: {problem}" for problem in self._problems]

    # -- one fault --------------------------------------------------------------------------------

    def _failed(self, fault: Fault) -> str:
        self._restore()
        hangs = fault.kind in (HANG, LATE)
        kernel = Kernel(self._world, fault)
        ended = self._run(self._scenario.command, kernel, impatient=hangs)
        outcome = self._judged(ended)
        kernel.ended()
        self._rolled_back(ended)
        return outcome if kernel.injected else "not reached"

    def _judged(self, ended: Ended) -> str:
        """Return the kind of end, after a check of what the command claims."""
        if ended.late:
            return self._violated(f"it waited {BOUND:.0f} s and more", ended)
        if "Traceback" in ended.out + ended.err or "internal error" in ended.err:
            return self._violated("a traceback", ended)
        values = self._values()
        missing = {key for key, value in self._goal.items() if values.get(key) != value}
        if ended.code and self._scenario.tunes:
            # A value that is only reset by another write has no row of its own, and one that was
            # written before a failure need not be the one that belongs to the failed setting.
            written = _written_values(ended)
            missing = {key for key in missing if key[1] in self._settings}
            missing = {key for key in missing if key not in written or written[key] != values[key]}
        if ended.code == 0:
            if missing:
                return self._violated(f"exit 0, and {_listed(missing)} are not done", ended)
            if self._own_files() != self._files:
                return self._violated(f"exit 0, and files differ: {self._different()}", ended)
            return "done"
        if ended.code not in (1, 2, 3):
            return self._violated(f"exit {ended.code}", ended)
        unnamed = missing - _named(ended)
        if not missing:
            return "done, with a complaint" if ended.err or ended.out else "silent"
        if not unnamed:
            return "named"
        if values == self._begin and ended.err:
            return "refused"
        return self._violated(f"exit {ended.code}, and {_listed(unnamed)} are not named", ended)

    def _violated(self, problem: str, ended: Ended) -> str:
        messages = " / ".join((ended.err.strip() or ended.out.strip()).splitlines()[-4:])
        self._problems.append(f"{problem} | exit {ended.code} | {messages[-400:]}")
        return "violation"

    def _rolled_back(self, before: Ended) -> None:
        """Check that a rollback now restores everything, and that a record stops the daemon."""
        if before.code == 0 and self._scenario.command[0] == "rollback":
            values = self._values()
            self._run(PASS)
            if self._values() != values:
                self._problems.append("exit 0, and a later pass tunes: there is no record")
        different = {key for key, value in self._values().items() if self._first.get(key) != value}
        if before.code == 0 and self._uninstalls:
            return  # its files are compared with those of a run without a fault
        words = ("uninstall",) if self._uninstalls else ("rollback", "--json")
        ended = self._run(words)
        current_values = self._values()
        missing = {key for key, value in self._first.items() if current_values.get(key) != value}
        self._restored = len(different - missing)
        if ended.code != 0 or missing:
            self._violated(f"then {words[0]} leaves {_listed(missing)}", ended)

    # -- the machine ------------------------------------------------------------------------------

    def _run(
        self, words: tuple[str, ...], kernel: Kernel | None = None, *, impatient: bool = False
    ) -> Ended:
        # A rollback after a hang is patient again: a busy machine needs more than a second.
        file = self._world.root / _CONFIGURATION
        before, now = (_LONG, _SHORT) if impatient else (_SHORT, _LONG)
        file.write_text(file.read_text().replace(before, now))

        def work() -> int:
            return self._pass(impatient=impatient) if words == PASS else main(list(words))

        kernel = kernel or Kernel(self._world)
        return Run(work, traced=True, numbers=kernel.numbers, longest=BOUND).trace(kernel)

    def _pass(self, *, impatient: bool) -> int:
        """Make a pass of the daemon, and print its report as rows of an apply."""
        config, profile = self._policy
        assert profile is not None
        if impatient:
            config = replace(config, act=replace(config.act, deadline_seconds=DEADLINE))
        sent = PassMaker(config, profile).make(encode(Order(PassReason.AUDIT)))
        report = decode_report(sent)
        rows = [
            {"target": change.target, "setting": change.setting, "outcome": str(change.handled)}
            for change in report.changes
        ]
        if report.unreadable:  # it counts them, and names none
            rows += [
                {"target": target, "setting": name, "outcome": "unreadable"}
                for target, name in self._first
            ]
        print(msgspec.json.encode({"rows": rows}).decode())
        if report.locked:
            print("another hbatune was running, or a rollback was recorded", file=sys.stderr)
            return 3
        if report.error:
            print(report.error, file=sys.stderr)
        return int(bool(report.error or report.open or report.unreadable))

    def _values(self) -> Values:
        return kills.values(self._world.tree)

    def _own_files(self) -> dict[str, bytes]:
        """Return the files outside of its state: configuration, units and udev rules."""
        root = self._world.root
        folders = ("etc", "elsewhere", *(("run", "state") if self._uninstalls else ()))
        files = (file for folder in folders for file in (root / folder).rglob("*"))
        contents = {
            str(file.relative_to(root)): file.read_bytes() for file in files if file.is_file()
        }
        contents[_CONFIGURATION] = contents[_CONFIGURATION].replace(_SHORT.encode(), _LONG.encode())
        return contents

    def _install(self) -> None:
        """Place files as `install` does; its checks are of the machine that runs the tests."""
        (self._world.root / _CONFIGURATION).write_text(_LONG)
        rules, unit = Piece(Paths.udev_rules, "# none yet\n"), Paths.units / system.UNIT
        placement.place_pieces(placement.ROOT, Paths.manifest, [rules, Piece(unit, "[Service]\n")])

    def _drift(self) -> None:
        """Let an administrator change some values."""
        tree = self._world.tree
        for name, texts in _DRIFT.items():
            for path, text in texts.items():
                assert tree.write(tree.places[name], path, text, By.ADMINISTRATOR) is None

    def _save(self) -> Tree:
        shutil.rmtree(self._copy, ignore_errors=True)
        shutil.copytree(self._world.root, self._copy, symlinks=True)
        return deepcopy(self._world.tree)

    def _restore(self) -> None:
        shutil.rmtree(self._world.root)
        shutil.copytree(self._copy, self._world.root, symlinks=True)
        self._world.tree = deepcopy(self._saved)

    def _different(self) -> str:
        contents = self._own_files()
        names = contents.keys() | self._files.keys()
        return ", ".join(sorted(n for n in names if contents.get(n) != self._files.get(n)))


@contextlib.contextmanager
def machine(name: str) -> Iterator[Machine]:
    """Make a machine on which the scenario of this name is failed."""
    with kills.described() as world:
        kills.load(world)
    with kills.described() as world, placed(world):
        simulated_machine = Machine(world, name)
        try:
            yield simulated_machine
        finally:
            simulated_machine.close()


def words_of(scenario: Scenario) -> set[str]:
    """Return the words of all commands of a scenario."""
    return {argument for words in (*scenario.before, scenario.command) for argument in words}


def one_of_each(faults: Iterable[Fault], seed: int, most: int) -> list[Fault]:
    """Return at most ``most`` faults at random, no two alike.

    Alike are the same failures of the same call in the same directory by the same process.
    """
    kinds: dict[tuple[str, ...], list[Fault]] = {}
    for fault in faults:
        call = fault.call
        folder = "sys" if call.is_device else os.path.dirname(call.target)
        kinds.setdefault((call.role, call.name, folder, fault.kind), []).append(fault)
    chance = random.Random(seed)
    choices = [chance.choice(alike) for alike in kinds.values()]
    return chance.sample(choices, min(most, len(choices)))


def _named(ended: Ended) -> set[tuple[str, str]]:
    """Return the targets and settings that a command has named as not done."""
    if ended.out.startswith("{"):
        document = msgspec.json.decode(ended.out)
        rows = document["rows"]
        done = ("kept", "written")
        unread = {disk["target"] for disk in document.get("left_alone", ()) if disk["unread"]}
        # One that cannot be identified is named as a whole: its settings are not known.
        unidentified = {(name, setting) for name in unread for setting in kills.SET_BY_PROFILES}
        return unidentified | {
            (row["target"], row["setting"])
            for row in rows
            if row["outcome"] not in done or row.get("limit")
        }
    words = [set(re.findall(r"[\w/-]+", line)) for line in ended.out.splitlines()]
    return {(a, b) for line in words for a in line for b in line}


def _written_values(ended: Ended) -> Values:
    """Return the values that an apply says it has written."""
    if not ended.out.startswith("{"):
        return {}
    rows = msgspec.json.decode(ended.out)["rows"]
    written = (row for row in rows if row["outcome"] == "written" and "value" in row)
    return {(row["target"], row["setting"]): row["value"] for row in written}


def _listed(keys: Iterable[tuple[str, str]]) -> str:
    return ", ".join(" ".join(key) for key in sorted(keys)) or "nothing"
