"""Random sequences of commands, administrators, events and failures; each is its seed.

``sequence(seed)`` makes a scenario, ``violations(scenario)`` runs it in a fresh world and returns
the violated invariants. ``shortest`` removes steps as long as the violation remains.
"""

import errno
import random
import re
import shutil
import tempfile
import traceback
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hbatune.act import journal
from hbatune.agent.orders import Handled, PassReason, PassReport
from hbatune.settings.table import (
    QUEUE_DEPTH,
    SETTINGS,
    Value,
    find_setting,
    is_among,
    is_tunable,
)
from tests.kernel.invariants import Violation
from tests.kernel.keeper import Keeper, started
from tests.kernel.model import HANGS, By, Change, Disk, Write
from tests.kernel.seams import Ended, World, installed
from tests.kernel.tree import MAP, SLOTS, Tree

DISKS = (*(slot.name for slot in SLOTS), MAP)
PROFILES = ("one", "two", "three")
_BY_PATH = {path: setting.name for setting in SETTINGS.values() for path in setting.paths}
_SOURCES = '[document.K]\ntitle="kernel"\n[source.K-1]\ndocument="K"\nsection="s"\nsays="x"\n'


def name_of(path: str) -> str:
    """Return the setting behind a file."""
    return _BY_PATH.get(path, path)


def typed(path: str, text: str | None) -> Value | None:
    """Return the value of a file's text, None where the file does not exist."""
    return None if text is None else find_setting(name_of(path)).format.parse(text)


# -- the steps -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Admin:
    """An administrator writes to a file of a disk."""

    disk: str
    path: str
    text: str


@dataclass(frozen=True)
class Kernels:
    """An event in the kernel: ``reset``, ``reload``, ``queue_full``, ``ramp_up`` or ``served``."""

    what: str
    disk: str


@dataclass(frozen=True)
class Swap:
    """Another drive is put into a slot."""

    disk: str


@dataclass(frozen=True)
class Full:
    """The disk with hbatune's state becomes full, or has room again."""

    full: bool


Meanwhile = Admin | Kernels | Swap | Full


@dataclass(frozen=True)
class Apply:
    """`hbatune apply`; ``killed`` after so many boundaries."""

    profile: str | None
    targets: tuple[str, ...] = ()
    once: bool = False
    killed: int | None = None
    meanwhile: Meanwhile | None = None


@dataclass(frozen=True)
class Rollback:
    """`hbatune rollback`."""

    targets: tuple[str, ...] = ()
    killed: int | None = None
    meanwhile: Meanwhile | None = None


@dataclass(frozen=True)
class Look:
    """The daemon makes a pass; with ``restarted`` it is started again before."""

    reason: PassReason
    names: tuple[str, ...] | None = None
    restarted: bool = False
    killed: int | None = None
    meanwhile: Meanwhile | None = None


@dataclass(frozen=True)
class Configure:
    """The site's configuration is written: exclusions, drift, a site rule, or a mistake.

    ``form`` is the form of the excluded names: ``name``, ``/dev`` node, ``wwid`` or ``WWID``.
    """

    exclude: tuple[str, ...] = ()
    form: str = "name"
    drift: str = "repair"
    drift_of: tuple[tuple[str, str], ...] = ()
    sectors: int | None = None
    mistake: bool = False


@dataclass(frozen=True)
class Refuse:
    """The next writes to a file of a disk end with these errors."""

    disk: str
    path: str
    errors: tuple[int, ...]


@dataclass(frozen=True)
class Release:
    """The I/O ends that hanging writes waited for: they land."""


@dataclass(frozen=True)
class Reboot:
    """The machine boots again."""


Step = Apply | Rollback | Look | Configure | Refuse | Release | Reboot | Meanwhile


@dataclass(frozen=True)
class Scenario:
    """The content of a seed: the kernel with its modules, the profiles, and the steps."""

    seed: int
    series: str
    modules: tuple[str, ...]
    profiles: dict[str, str]
    steps: tuple[Step, ...]


_VALUES: dict[str, tuple[int | str, ...]] = {
    "scheduler": ("none", "mq-deadline", "kyber", "bfq"),
    "nr_requests": (64, 256, 512, 1024, 2048),
    "queue_depth": (16, 32, 64, 128, 254),
    "rq_affinity": (0, 1, 2),
    "nomerges": (0, 1, 2),
    "add_random": (0, 1),
    "iostats": (0, 1),
    "rotational": (0, 1),
    "max_sectors_kb": (128, 512, 1280, 2048, 4096),
    "wbt_lat_usec": (0, 2000, 5000),
    "read_ahead_kb": (64, 128, 512, 4096),
}
_WHEN = ("", "", "", 'when = { medium = "ssd" }', 'when = { family = "mpt3sas" }')


def sequence(seed: int) -> Scenario:
    """Return the sequence of a seed."""
    chance = random.Random(seed)
    series = chance.choice(("6.1", "6.12", "7.3"))
    profiles = {name: _profile(name, chance) for name in PROFILES}
    steps = [_step(chance) for _ in range(chance.randint(2, 8))]
    # Every sequence ends with a rollback under good conditions, after which all must be restored.
    last: list[Step] = [Release(), Full(False), Rollback(), Look(PassReason.AUDIT)]
    modules = ("kyber", "bfq") if chance.random() < 0.8 else ()
    return Scenario(
        seed, series, modules, profiles, (Apply(chance.choice(PROFILES)), *steps, *last)
    )


def _profile(name: str, chance: random.Random) -> str:
    lines = [f'title = "{name}"']
    for setting_name in chance.sample(sorted(_VALUES), chance.randint(2, 6)):
        value = chance.choice(_VALUES[setting_name])
        effect = "value" if isinstance(value, str) else chance.choice(("value", "at_least"))
        lines += [
            "[[rule]]",
            f'name = "{setting_name}"',
            f'setting = "{setting_name}"',
            chance.choice(_WHEN),
            f'{effect} = "{value}"' if isinstance(value, str) else f"{effect} = {value}",
            'because = "a test"',
            'source = "site"',
        ]
    return "\n".join(lines) + "\n"


def _step(chance: random.Random) -> Step:
    make_step: Callable[[random.Random], Step] = chance.choices(
        (_apply, _rollback, _look, _meanwhile, _configure, _refuse, _release, _reboot),
        (22, 12, 20, 25, 9, 7, 2, 3),
    )[0]
    return make_step(chance)


def _targets(chance: random.Random) -> tuple[str, ...]:
    return () if chance.random() < 0.6 else tuple(chance.sample(DISKS, chance.randint(1, 2)))


def _killed(chance: random.Random) -> int | None:
    return chance.randint(0, 40) if chance.random() < 0.12 else None


def _beside(chance: random.Random) -> Meanwhile | None:
    return _meanwhile(chance) if chance.random() < 0.15 else None


def _apply(chance: random.Random) -> Apply:
    return Apply(
        chance.choice((*PROFILES, None)),
        _targets(chance),
        once=chance.random() < 0.2,
        killed=_killed(chance),
        meanwhile=_beside(chance),
    )


def _rollback(chance: random.Random) -> Rollback:
    return Rollback(_targets(chance), _killed(chance), _beside(chance))


def _look(chance: random.Random) -> Look:
    reason = chance.choice(
        (PassReason.EVENT, PassReason.AUDIT, PassReason.AUDIT, PassReason.RELOAD, PassReason.START)
    )
    names = (
        tuple(chance.sample(DISKS, chance.randint(1, 2))) if reason is PassReason.EVENT else None
    )
    restarted = reason is PassReason.START
    return Look(reason, names, restarted, _killed(chance), _beside(chance))


def _meanwhile(chance: random.Random) -> Meanwhile:
    kind = chance.random()
    if kind < 0.7:
        disk = chance.choice(DISKS)
        name = chance.choice((*_VALUES, "scheduler", "scheduler", "nr_requests", "tunable"))
        if name == "tunable":
            name = chance.choice(("queue/iosched/fifo_batch", "queue/async_depth"))
            return Admin(disk, name, str(chance.choice((1, 7, 32))))
        return Admin(disk, SETTINGS[name].path, str(chance.choice(_VALUES[name])))
    if kind < 0.82:
        kind_of_event = chance.choice(("reset", "reload", "queue_full", "ramp_up", "served"))
        disk = {"reset": "nvme0n1", "reload": MAP}.get(kind_of_event) or chance.choice(DISKS[:4])
        return Kernels(kind_of_event, disk)
    if kind < 0.92:
        return Swap(chance.choice(("sda", "sdb", "nvme0n1")))
    return Full(chance.random() < 0.6)


def _configure(chance: random.Random) -> Configure:
    if chance.random() < 0.3:
        return Configure(mistake=True)
    policies = ("repair", "report", "ignore")
    return Configure(
        exclude=tuple(chance.sample(DISKS, 1)) if chance.random() < 0.4 else (),
        form=chance.choice(("name", "name", "/dev", "wwid", "WWID")),
        drift=chance.choice(policies),
        drift_of=(("scheduler", chance.choice(policies)),) if chance.random() < 0.4 else (),
        sectors=chance.choice((512, 1280, 2048, 4096)) if chance.random() < 0.5 else None,
    )


def _refuse(chance: random.Random) -> Refuse:
    name = chance.choice((*_VALUES, "scheduler", "scheduler", "nr_requests"))
    error = chance.choice((errno.EINVAL, errno.EBUSY, errno.EIO, HANGS))
    return Refuse(chance.choice(DISKS), SETTINGS[name].path, (error,) * chance.randint(1, 2))


def _release(chance: random.Random) -> Release:
    return Release()


def _reboot(chance: random.Random) -> Reboot:
    return Reboot()


# -- running them ------------------------------------------------------------------------------


Key = tuple[Disk, str]


@dataclass
class Footprint:
    """The files that hbatune has changed since its last rollback, and later changes by others.

    ``before`` has a file's text before hbatune's first change of it, ``begun`` the text at the
    start of that run, ``first`` all texts of a disk when hbatune first wrote to it. Each of them is
    accepted as the baseline: others may write between a run's reading and its writing, and a value
    that the first write did not change may have its baseline from then.
    """

    before: dict[Key, str | None] = field(default_factory=dict)
    begun: dict[Key, str | None] = field(default_factory=dict)
    first: dict[Disk, dict[str, str]] = field(default_factory=dict)
    others: dict[Key, str | None] = field(default_factory=dict)

    def take(self, changes: Iterable[Change], begun: dict[Disk, dict[str, str]]) -> None:
        """Take changes in; ``begun`` are the texts of every disk before them."""
        for change in changes:
            key = (change.disk, change.name)
            if typed(change.name, change.before) == typed(change.name, change.after):
                continue  # only the list of offered schedulers has changed
            if change.by is By.HBATUNE:
                texts = begun.get(change.disk, {})
                self.before.setdefault(key, change.before)
                self.begun.setdefault(key, texts.get(change.name))
                self.first.setdefault(change.disk, texts)
                self.others.pop(key, None)
            elif key in self.before:
                self.others[key] = change.after

    def is_back(self, key: Key, current_text: str | None) -> bool:
        """Whether a file has a value that it had before hbatune changed it."""
        disk, path = key
        was = (self.before[key], self.begun[key], self.first[disk].get(path))
        return typed(path, current_text) in {typed(path, text) for text in was}

    def release(self, keys: Iterable[Key]) -> None:
        """Forget values that a run has put back for good: they are not hbatune's any more."""
        for key in tuple(keys):
            for texts in (self.before, self.begun, self.others):
                texts.pop(key, None)

    def keep(self, keys: Collection[Key]) -> None:
        """Forget all but these: the others are restored."""
        self.before = {key: text for key, text in self.before.items() if key in keys}
        self.begun = {key: self.begun[key] for key in self.before}
        self.others = {key: text for key, text in self.others.items() if key in keys}
        disks = {disk for disk, _ in self.before}
        self.first = {disk: texts for disk, texts in self.first.items() if disk in disks}


class Session:
    """A world, the daemon on it, and the expected state of both."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.found: list[Violation] = []
        self.footprint = Footprint()
        self.keeper: Keeper | None = None
        self.configured = Configure()
        self._called_in_site: list[str] = []
        self.off_everything = False
        self.off: set[str] = set()
        self.lifted: set[str] = set()
        self.unsure: set[str] = set()  # named to a rollback that was killed
        self.seen: set[Disk] = set()
        # Settings that the daemon's last pass could not set.
        self.failed: set[tuple[str, str]] = set()
        self._step: Step = Release()
        self._seen_by_run: set[Disk] = set()
        self._begun: dict[Disk, dict[str, str]] = {}
        self._learnt = 0

    @property
    def tree(self) -> Tree:
        return self.world.tree

    def take(self, step: Step) -> None:
        """Take one step, and check the invariants after it."""
        self._step = step
        tree = self.tree
        tree.writes.clear()
        tree.changes.clear()
        tree.shrinks.clear()
        tree.belows.clear()
        self._learnt = 0
        self._begun = {disk: disk.texts(tree.series) for disk in tree.disks}
        try:
            self._do(step)
        except Exception as error:  # noqa: BLE001  (any exception is a fault)
            last = traceback.extract_tb(error.__traceback__)[-1]
            self._violated("no_fault", f"{error!r} in {last.filename}:{last.lineno}")
        self._learn()
        self.footprint.release(self._forgotten())
        for shrink in tree.shrinks:
            if shrink.by is By.HBATUNE:
                self._violated("no_shrink", f"{shrink.disk}: {shrink.before} → {shrink.after} tags")
        for below in tree.belows:
            if below.by is By.HBATUNE:
                self._violated(
                    "no_path_below",
                    f"{below.path} at {below.path_kb} below {below.map} at {below.map_kb}",
                )

    def _forgotten(self) -> Iterator[Key]:
        """Yield the files with their old values that are no longer in the journal.

        They are not hbatune's any more. A setting that is reset by another one in the journal
        stays, since it is needed when that one goes back.
        """
        recorded, _ = journal.load(self.world.root / "state/journal.json", self.world.boot_id)
        filed: dict[str, set[str]] = {}
        for entry in recorded.entries:
            name = entry.setting
            filed.setdefault(entry.target, set()).update((name, *find_setting(name).resets))
        for disk, path in self.footprint.before:
            is_recorded = is_among(name_of(path), filed.get(disk.name, ()))
            current_text = disk.texts(self.tree.series).get(path)
            if (
                not is_recorded
                and not disk.gone
                and self.footprint.is_back((disk, path), current_text)
            ):
                yield disk, path

    def _learn(self) -> None:
        self.footprint.take(self.tree.changes[self._learnt :], self._begun)
        self._learnt = len(self.tree.changes)

    def _violated(self, invariant: str, evidence: str) -> None:
        self.found.append(
            Violation(invariant, repr(self._step), evidence.replace(str(self.world.root), ""))
        )

    def _do(self, step: Step) -> None:
        match step:
            case Apply():
                self._apply(step)
            case Rollback():
                self._rollback(step)
            case Look():
                self._look(step)
            case Configure():
                self.configured = step
                self._configure(step)
            case Refuse():
                if step.disk in self.tree.places:
                    self.tree.places[step.disk].refusals[step.path] = deque(step.errors)
            case Release():
                self.world.release()
                for disk in self.tree.disks:
                    disk.refusals.clear()
            case Reboot():
                self.world.reboot()
                self.footprint, self.keeper = Footprint(), None
            case _:
                self._happen(step)

    def _happen(self, happening: Meanwhile) -> None:
        tree = self.tree
        match happening:
            case Admin():
                disk = tree.places[happening.disk]
                tree.write(disk, happening.path, happening.text, By.ADMINISTRATOR)
            case Kernels("reset", disk):
                tree.reset(tree.places[disk])
            case Kernels("reload", disk):
                tree.reload(tree.places[disk])
            case Kernels("queue_full", disk):
                tree.queue_full(tree.places[disk], 8)
            case Kernels("ramp_up", disk):
                tree.ramp_up(tree.places[disk])
            case Kernels("served", disk):
                tree.places[disk].served = True
            case Swap():
                tree.swap(happening.disk)
            case Full():
                self.world.full = happening.full

    def _prepare(self, step: Apply | Rollback | Look) -> None:
        self.world.kill_at = step.killed
        planned = step.meanwhile
        self.world.meanwhile = None if planned is None else lambda: self._happen(planned)
        self._seen_by_run = set(self.tree.disks)

    # -- apply ---------------------------------------------------------------------------------

    def _apply(self, step: Apply) -> None:
        self._prepare(step)
        words = ["apply", "--no-probe", "--json"]
        words += ["--profile", step.profile] if step.profile else []
        words += ["--once"] if step.once else []
        named = self._meant(step.targets)
        ids = {self._id(disk_name) for disk_name in named}  # a drive may be swapped meanwhile
        off = self._off(named if step.targets else None)
        ended = self.world.run(*words, *step.targets)
        self._tuned(step, off)
        if ended.code in (0, 1, None):
            if step.targets:
                self.off -= ids
                self.lifted |= ids
                self.unsure -= ids
            else:
                self.off_everything, self.lifted = False, set()
        if ended.code is None:
            self.unsure |= ids  # perhaps still rolled back: the apply lifts that at its very end
            return
        rows = self._rows(ended)
        self._check_dropped(rows)
        self._check_rows(rows)
        self._check_exit(ended, rows)
        if ended.code == 0 and not step.once and not step.targets:
            self._check_reconciled(rows)

    def _check_rows(self, rows: Sequence[dict[str, Any]]) -> None:
        keys = [(row["id"], row["setting"]) for row in rows]
        for key in {key for key in keys if keys.count(key) > 1}:
            self._violated("one_outcome", f"{key} is there twice")
        for row in rows:
            description = f"{row['target']} {row['setting']}: {row['state']}, {row['outcome']}"
            if row["state"] in ("drift", "ok") and row["outcome"] is None:
                self._violated("one_outcome", description)
            if row["outcome"] in ("written", "kept") and row["value"] is not None:
                self._check_value(row["target"], row["setting"], row["value"], description)

    def _check_value(self, target: str, name: str, value: Value, description: str) -> None:
        """Check a value reported as set, unless others changed that disk meanwhile."""
        disk = self.tree.places.get(target)
        if disk is None or any(
            c.disk is disk and c.by is not By.HBATUNE for c in self.tree.changes
        ):
            return
        if disk not in self._seen_by_run:
            return
        texts = disk.texts(self.tree.series)
        path = next(path for path in reversed(find_setting(name).paths) if path in texts)
        current = typed(path, texts.get(path))
        if current != value:
            self._violated("truthful", f"{description} {value}, but it is {current}")

    def _check_exit(self, ended: Ended, rows: Sequence[dict[str, Any]]) -> None:
        bad = [
            row
            for row in rows
            if row["state"] == "unreadable" or row["outcome"] not in (None, "kept", "written")
        ]
        if ended.code == 0 and (bad or ended.document is None):
            self._violated("exit_code", f"0 with {bad[:1]}")
        if ended.code == 1 and not bad and not ended.err:
            self._violated("exit_code", "1 and nobody knows why")
        if ended.code not in (0, 1, 2, 3) or (ended.code in (2, 3) and not ended.err):
            self._violated("exit_code", f"{ended.code}: {ended.err}")
        if ended.code in (2, 3) and self._ours():
            self._violated("exit_code", f"{ended.code} after writes: {ended.err}")

    def _check_reconciled(self, rows: Sequence[dict[str, Any]]) -> None:
        """Check that values of earlier profiles, not wanted by this one, are restored."""
        reported = {
            (row["target"], row["setting"])
            for row in rows
            if row["state"] in ("ok", "drift", "unreadable", "fixed")
        }
        self._learn()
        for (disk, path), text in self.footprint.before.items():
            if disk.gone or text is None or (disk.name, name_of(path)) in reported:
                continue
            if (disk, path) in self.footprint.others or self._off(None)(disk):
                continue
            if self._id(disk.name) in self.unsure:
                continue
            current_texts = disk.texts(self.tree.series)
            first = self.footprint.before.get((disk, "queue/scheduler"))
            dependent = ("queue/nr_requests", "queue/wbt_lat_usec", "queue/async_depth")
            depends = path in dependent or "iosched" in path
            if (
                depends
                and first is not None
                and typed("queue/scheduler", current_texts["queue/scheduler"])
                != typed("queue/scheduler", first)
            ):
                continue
            if "/async_depth" in path:
                continue  # follows nr_requests
            if not self.footprint.is_back((disk, path), current_texts.get(path)):
                self._violated(
                    "reconciled", f"{disk.name} {path}: {current_texts.get(path)}, was {text}"
                )

    # -- rollback --------------------------------------------------------------------------------

    def _rollback(self, step: Rollback) -> None:
        self._prepare(step)
        before = dict(self.footprint.before)
        named = self._meant(step.targets)
        ids = {self._id(disk_name) for disk_name in named}  # a drive may be swapped meanwhile
        ended = self.world.run("rollback", "--json", *step.targets)
        self._check_identity()
        if ended.code is None:
            self.off_everything, self.off = False, self.off - ids
            self.unsure |= ids
            return
        if ended.code not in (0, 1) or ended.document is None:
            if not step.targets or not self.configured.mistake:
                self._violated("rollback_runs", f"{ended.code}: {ended.err}")
            return
        if step.targets:
            self.off |= ids
            self.lifted -= ids
        else:
            self.off_everything, self.off, self.lifted = True, set(), set()
        rows = self._rows(ended)
        self._check_dropped(rows)
        self._check_restored(before, rows, named if step.targets else None, ended)

    def _check_restored(
        self,
        before: dict[Key, str | None],
        rows: Sequence[dict[str, Any]],
        named: set[str] | None,
        ended: Ended,
    ) -> None:
        self._learn()
        keys = [(row["id"], row["setting"]) for row in rows]
        for key in {key for key in keys if keys.count(key) > 1}:
            self._violated("one_outcome", f"{key} is there twice")
        undone = {
            (row["target"], row["setting"])
            for row in rows
            if row["outcome"] not in ("kept", "written")
        }
        for row in rows:
            if row["outcome"] == "ignored" and row["setting"] == QUEUE_DEPTH:
                self._violated("restored", f"{row['target']}: {row['setting']} is ignored")
        removed = {(row["target"], row["setting"]) for row in rows if _gone(row)}
        if ended.code == 0 and any(not _gone(row) for row in rows if _not_done(row)):
            self._violated("exit_code", "0, and not everything is back")
        for disk, path in before:
            if disk.gone or (named is not None and disk.name not in named):
                continue
            is_reported = (disk.name, name_of(path)) in undone
            if not is_reported:
                self._check_back(before, (disk, path), ended)
        retained_keys = {
            key
            for key in self.footprint.before
            if (named is not None and key[0].name not in named)
            or (key[0].name, name_of(key[1])) in undone - removed
        }
        self.footprint.keep(retained_keys)

    def _check_back(self, before: dict[Key, str | None], key: Key, ended: Ended) -> None:
        (disk, path), text = key, before[key]
        current_text = disk.texts(self.tree.series).get(path)
        if text is None or key in self.footprint.others:
            return  # a tunable that did not exist before, or a value that others have set since
        scheduler = typed("queue/scheduler", disk.texts(self.tree.series)["queue/scheduler"])
        first = before.get((disk, "queue/scheduler"))
        if (
            current_text is None
            and first is not None
            and scheduler == typed("queue/scheduler", first)
        ):
            return  # a tunable of a scheduler that is not in use any more
        if not self.footprint.is_back(key, current_text):
            self._violated(
                "restored", f"{disk.name} {path}: {current_text}, was {text}; exit {ended.code}"
            )

    # -- the daemon ----------------------------------------------------------------------------

    def _look(self, step: Look) -> None:
        if step.restarted or self.keeper is None:
            self.keeper = started(self.world)
        if self.keeper is None:
            return
        self._prepare(step)
        off = self._off(None)
        report = self.keeper.look(step.reason, step.names)
        self._tuned(step, off)
        if step.reason in (PassReason.AUDIT, PassReason.EVENT):
            self._check_policy(self.keeper)
        if report is None:
            return
        names = None if step.names is None else self._meant(step.names)
        if report.subjects is not None:
            self.seen |= {d for d in self._seen_by_run if names is None or d.name in names}
        self._check_report(report)

    def _check_policy(self, keeper: Keeper) -> None:
        """Check that drift to be ignored or reported is left, on disks seen before."""
        config = keeper.policy.config.daemon
        for write in self._ours():
            name = name_of(write.name)
            if (write.disk.name, name) in self.failed:
                continue  # a setting that failed is tried again, which is no repair of drift
            reaction = config.drift_of.get(name, config.drift)
            if write.disk in self.seen and str(reaction) != "repair":
                self._violated("policy", f"{write.disk.name} {name} = {write.text}")

    def _check_report(self, report: PassReport) -> None:
        tried = (Handled.FAILED, Handled.WAITING)
        self.failed = {(e.target, e.setting) for e in report.changes if e.handled in tried}
        keys = [change.key for change in report.changes]
        for key in {key for key in keys if keys.count(key) > 1}:
            self._violated("one_outcome", f"{key} is there twice")
        for change in report.changes:
            if change.handled is Handled.WRITTEN:
                description = f"{change.target} {change.setting}: {change.outcome}"
                self._check_value(change.target, change.setting, change.value, description)
        reported = {(change.target, change.setting) for change in report.changes}
        if report.error is None:
            self._check_told(reported)

    # -- what is common -------------------------------------------------------------------------

    def _tuned(self, step: Step, off: Callable[[Disk], bool]) -> None:
        """Check that no target was written to that is rolled back, excluded or new."""
        self._check_identity()
        excluded = self._meant(exclude) if (exclude := self._excluded()) else set()
        for write in self._ours():
            description = f"{write.disk.name} {write.name} = {write.text}"
            if off(write.disk):
                self._violated("hands_off", description)
            key = (write.disk, write.name)
            back = key in self.footprint.before and self.footprint.is_back(key, write.text)
            begun = self._begun.get(write.disk, {}).get(write.name)
            # A write had reset it.
            is_unchanged = typed(write.name, write.text) == typed(write.name, begun)
            if write.disk.name in excluded and not (back or is_unchanged):
                self._violated("excluded", description)

    def _check_identity(self) -> None:
        for write in self._ours():
            if write.disk not in self._seen_by_run:
                self._violated("identity", f"{write.disk.name} {write.name} = {write.text}")

    def _check_dropped(self, rows: Sequence[dict[str, Any]]) -> None:
        self._check_told({(row["target"], row["setting"]) for row in rows})

    def _check_told(self, reported: set[tuple[str, str]]) -> None:
        """Check that each write has a row; tunables belong to the row of their scheduler.

        A write that only undoes an effect of another write belongs to that one's row.
        """
        for write in self._ours():
            name = name_of(write.name)
            alone = not is_tunable(name) and not find_setting(name).kept
            if alone and (write.disk.name, name) not in reported:
                self._violated("nothing_dropped", f"{write.disk.name} {write.name}")

    def _ours(self) -> list[Write]:
        return [write for write in self.tree.writes if write.by is By.HBATUNE]

    def _rows(self, ended: Ended) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = [] if ended.document is None else ended.document["rows"]
        return rows

    def _meant(self, targets: Iterable[str]) -> set[str]:
        """Return the disks named by the targets: a map includes its paths."""
        named = set(targets) or set(DISKS)
        return named | ({"sdc", "sdd"} if MAP in named else set())

    def _off(self, named: set[str] | None) -> Callable[[Disk], bool]:
        """Return a function that says whether a run over these disks, or all, must spare a disk."""
        everything, off, lifted = self.off_everything, set(self.off), set(self.lifted)
        whole_apply = named is None and isinstance(self._step, Apply)

        def is_off(disk: Disk) -> bool:
            if disk.gone:
                return False
            id = self._id(disk.name)
            if named is not None:
                return disk.name not in named
            return id in off or (everything and not whole_apply and id not in lifted)

        return is_off

    def _id(self, name: str) -> str:
        """Return the identity of a disk, which does not depend on host numbers."""
        if name == MAP:
            return MAP
        slot = self.tree.slots[name]
        return f"{slot.wwid}@{slot.pci}"

    def _called(self, name: str, form: str) -> str:
        """Return the name of a disk in one of its forms."""
        wwid = self.tree.map_uuid if name == MAP else self.tree.slots[name].wwid
        return {"/dev": f"/dev/{name}", "wwid": wwid, "WWID": wwid.upper()}.get(form, name)

    def _excluded(self) -> tuple[str, ...]:
        """Return the excluded disks: an exclusion by WWID follows its drive, not the slot."""
        if self.configured.mistake:
            return ()
        called = self._called_in_site
        form = self.configured.form
        return tuple(name for name in self.configured.exclude if self._called(name, form) in called)

    def _configure(self, step: Configure) -> None:
        """Write the configuration, and keep the active profile."""
        etc = self.world.root / "etc"
        file = etc / "hbatune.toml"
        text = file.read_text() if file.exists() else ""
        active = re.search(r"^profile = .*$", text, re.M)
        lines = [active[0] if active else "", "[site]"]
        self._called_in_site = [self._called(name, step.form) for name in step.exclude]
        lines.append(f"exclude = {self._called_in_site}")
        if step.mistake:
            lines.append('exlude = ["sda"]')
        lines += ["[daemon]", f'drift = "{step.drift}"', "[daemon.drift_of]"]
        lines += [f'{name} = "{policy}"' for name, policy in step.drift_of]
        file.write_text("\n".join(lines) + "\n")
        rules = etc / "rules.d/site.toml"
        rules.unlink(missing_ok=True)
        if step.sectors is not None:
            rules.write_text(
                f'[[rule]]\nname = "large"\nsetting = "max_sectors_kb"\nvalue = {step.sectors}\n'
                'when = { kind = "path" }\nbecause = "a test"\nsource = "site"\n'
            )


def _not_done(row: dict[str, Any]) -> bool:
    return row["outcome"] not in ("kept", "written")


def _gone(row: dict[str, Any]) -> bool:
    return bool(row["gone"])


def violations(scenario: Scenario) -> list[Violation]:
    """Run a sequence in a fresh world and return the violations."""
    # In memory, since thousands of sequences write many small files.
    memory = Path("/dev/shm")
    folder = tempfile.mkdtemp(prefix="hbatune-", dir=memory if memory.is_dir() else None)
    try:
        world = World(Path(folder), scenario.series, scenario.modules)
        for name, text in scenario.profiles.items():
            (world.root / f"etc/profiles/{name}.toml").write_text(text)
        (world.root / "rules/sources.toml").write_text(_SOURCES)
        (world.root / "rules/arrays.toml").write_text("array = []\n")
        (world.root / "rules/yardsticks.toml").write_text("")
        with installed(world):
            session = Session(world)
            for step in scenario.steps:
                session.take(step)
            return session.found
    finally:
        shutil.rmtree(folder)


def shortest(scenario: Scenario, invariant: str) -> Scenario:
    """Return the sequence without the steps that the violation does not need."""
    at = 0
    while at < len(scenario.steps):
        fewer = replace(scenario, steps=(*scenario.steps[:at], *scenario.steps[at + 1 :]))
        if any(violation.invariant == invariant for violation in violations(fewer)):
            # ``at`` stays: the step that has moved up to this place has not been tried yet.
            scenario = fewer
        else:
            at += 1
    return scenario


def described(scenario: Scenario, breaches: Iterable[Violation]) -> Iterator[str]:
    """Yield the lines that describe a sequence and its violations."""
    yield f"seed {scenario.seed}, kernel {scenario.series}, schedulers to load: {scenario.modules}"
    yield from (f"  {step}" for step in scenario.steps)
    yield from (
        f"{violation.invariant}: {violation.what}\n    after {violation.step}"
        for violation in breaches
    )
