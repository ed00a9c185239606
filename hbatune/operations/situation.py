"""The start of most operations: configuration, profile, machine, and traces of earlier runs.

A snapshot takes all of that from this machine, and writes nothing.
"""

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from hbatune import __version__
from hbatune.act import claims, hands_off, interrupts, journal, modprobe, seen
from hbatune.act.claims import Claim
from hbatune.act.hands_off import HandsOff
from hbatune.act.journal import Journal
from hbatune.act.paths import Paths
from hbatune.errors import UsageError
from hbatune.facts.devices import followed, saved
from hbatune.facts.machine import boot_id, gather
from hbatune.facts.model import Endpoint, Machine, TargetKind
from hbatune.facts.observe import observe
from hbatune.facts.targets import choose
from hbatune.operations.context import Context
from hbatune.operations.notes import Leftovers
from hbatune.plan import make
from hbatune.plan.make import Key, SetBefore
from hbatune.plan.module_options import Rendered
from hbatune.plan.rows import Plan
from hbatune.policy import budget
from hbatune.policy.budget import DepthBudget
from hbatune.policy.config import FILE, Config, Site, load_config
from hbatune.policy.load import installed_library, load_profile, profiles
from hbatune.policy.match import SiteNames, Unmatched, leading, noted, unmatched
from hbatune.policy.model import Leave, Profile, Rule
from hbatune.probe.selection import with_probing
from hbatune.settings.table import SETTINGS, attributes, saved_values
from hbatune.snapshot.file import load
from hbatune.snapshot.model import HostPolicy, Snapshot
from hbatune.snapshot.unknown import not_understood, understood
from hbatune.workers import WorkerPool

REVERTED = "reverted: it cost more than the profile tolerates; name it to `apply` to try again"
ROLLED_BACK = "rolled back; name it to `apply` to have it tuned again"
EXCLUDED = "excluded in [site]"
_LINKS = ("/dev/mapper", "/dev/disk/by-id")
"""Folders of links to disks, whose names people use without the folder."""


def chosen_profile(name: str | None, config: Config) -> Profile:
    """Return the named profile, or the active one; UsageError where there is neither."""
    wanted = name or config.profile
    if wanted is None:
        raise UsageError(
            "no profile is active",
            hint="name one with --profile; `hbatune profiles` lists them",
        )
    return load_profile(wanted, installed_library())


def configuration() -> Config:
    """Return the site's configuration."""
    return load_config(installed_library())


def configuration_file() -> Path:
    """Return the path of the site's configuration."""
    return installed_library().site / FILE


class Situation(Struct, frozen=True):
    """A machine and the profile for it, with the traces that earlier runs left.

    ``chosen`` are the endpoints that were asked for and ``ids`` the ids of all targets that were,
    None for everything. ``hands_off`` is the record of rollbacks. ``stuck`` are writers of an
    earlier run that are still in the kernel, ``rendered`` the module options for the next load.
    ``site`` is the configuration's own, with its links followed. ``not_understood`` are settings of
    a snapshot's rules that this version does not know, or not with such values. ``elsewhere`` says
    that the machine is a snapshot's.
    """

    config: Config
    profile: Profile
    machine: Machine
    chosen: tuple[Endpoint, ...]
    ids: frozenset[str] | None
    journal: Journal
    hands_off: HandsOff
    stuck: tuple[Claim, ...]
    rendered: Rendered
    site: Site
    not_understood: tuple[str, ...] = ()
    elsewhere: bool = False

    def plan(
        self,
        *,
        named: bool = False,
        disrupt: bool = False,
        reconcile: bool = True,
        untouched: Callable[[str, str], bool] = lambda id, setting: False,
    ) -> Plan:
        """Plan the profile for the chosen targets; rollbacks do not exclude ``named`` ones.

        ``disrupt`` allows settings that disrupt the I/O of a whole adapter. With ``reconcile``,
        values that an earlier run has set and the profile no longer wants go back to their
        baselines. ``untouched`` says, by id and setting, which values will not be written whatever
        the plan says.
        """
        return make.make(
            self.machine,
            self.profile,
            excluded=self._excluded(named),
            site=self._site_rules(),
            only=self.ids,
            reverted={} if named else dict.fromkeys(self.journal.reverted, REVERTED),
            disrupt=disrupt,
            memory_share=self.config.act.memory_share,
            set_before=self._set_before() if reconcile else {},
            untouched=untouched,
            touched=self._touched,
            named=named,
        )

    def whole(self) -> "Situation":
        """Return the situation with everything chosen, for commands that only read."""
        return replace(self, chosen=self.machine.endpoints, ids=None)

    @property
    def boot_site(self) -> Site:
        """The configuration's site for the rules that udev follows."""
        return boot_site(self.config, self.machine)

    @property
    def budgets(self) -> Mapping[str, DepthBudget]:
        """The budgets of LUNs on arrays that the site has described, by endpoint id."""
        return budget.budgets(self.machine, self.site, installed_library().arrays())

    def _site_rules(self) -> Mapping[str, Rule]:
        arrays = installed_library().arrays()
        file = str(configuration_file())
        return budget.site_rules(self.machine, self.site, arrays, file)

    def _set_before(self) -> Mapping[Key, SetBefore]:
        """Return the values that earlier runs have set, without targets that were rolled back."""
        return {
            entry.key: SetBefore(entry.before, entry.ours, effect=entry.value is None)
            for entry in self.journal.entries
            if entry.setting in SETTINGS
            and (entry.value, entry.effect) != (None, None)
            and entry.id not in self.hands_off.ids
        }

    def _touched(self, id: str, setting: str) -> bool:
        """Whether a run of hbatune, or its udev rule, has set or reset a setting in this boot.

        A rule saves the old value in udev's database, which is asked only here, for the few disks
        of which it matters.
        """
        known = (each for each in self.journal.entries if each.key == (id, setting))
        if any((entry.value, entry.effect) != (None, None) for entry in known):
            return True
        here = () if self.elsewhere else self.machine.endpoints
        found = saved(each for each in here if each.id == id).get(id)
        return found is not None and setting in saved_values(found.texts)

    def _excluded(self, named: bool) -> Mapping[str, str]:
        reasons = {} if named else dict.fromkeys(self.hands_off.ids, ROLLED_BACK)
        # For named targets as well: only [site] itself lifts its exclusions.
        if self.site.exclude:
            meant = SiteNames(self.machine).meant(self.site.exclude)
            reasons.update(dict.fromkeys(meant, EXCLUDED))
        return reasons

    @property
    def unmatched(self) -> tuple[Unmatched, ...]:
        """The names in [site] that match nothing on this machine."""
        return unmatched(self.machine, self.site)


def look(
    config: Config,
    profile: Profile,
    names: Collection[str] = (),
    *,
    stuck: Iterable[Claim],
    worker_pool: WorkerPool | None = None,
    paths: Paths | None = None,
) -> Situation:
    """Read the machine, and return the situation with this profile for the named targets, or all.

    ``stuck`` are writers of an earlier run that are still in the kernel. Raises UsageError for an
    unknown name.
    """
    waiting, files = tuple(stuck), paths or Paths()
    wanted = {rule.setting for rule in profile.rules if not isinstance(rule.effect, Leave)}
    # Values that earlier profiles have set may have to go back, so they are read as well.
    wanted |= {name for name in journal.settings_set(files.journal, boot_id()) if name in SETTINGS}
    gathered = gather(
        # The limits of many settings depend on the scheduler, whether a rule names it or not.
        attributes(wanted | {"scheduler"}),
        of={kind: attributes(wanted, kind) for kind in (TargetKind.CONTROLLER, TargetKind.HOST)},
        deadline=config.act.deadline_seconds,
        # A read of a disk with a stuck writer would hang behind it.
        avoid={claim.target: waiting_for(claim) for claim in waiting},
        worker_pool=worker_pool,
    )
    machine = interrupts.with_immovable(gathered, files.locked)
    machine = with_probing(machine, isolated=config.probe.isolated)
    chosen = choose(machine, names)
    filed = peek(files.journal, machine)
    rendered = modprobe.read(files.modprobe)
    record = journal.rollback_record(filed, hands_off.load(files), machine)
    site = followed_site(config, machine)
    return Situation(
        config,
        profile,
        machine,
        chosen.endpoints,
        chosen.ids,
        filed,
        record,
        waiting,
        rendered,
        site,
    )


def survey(
    profile_name: str | None,
    targets: Iterable[str],
    *,
    stuck: Iterable[Claim] | None = None,
    snapshot: Path | None = None,
    worker_pool: WorkerPool | None = None,
    paths: Paths | None = None,
) -> Situation:
    """Read the configuration, the profile and the machine, or all of them from a ``snapshot``.

    Raises UsageError as each of them does.
    """
    if snapshot is not None:
        return recorded(load(snapshot), profile_name, targets)
    config = configuration()
    profile = chosen_profile(profile_name, config)
    files = paths or Paths()
    require_readable(files)
    # A caller without the lock must not settle them, since that kills writers.
    waiting = claims.outstanding(files.claims) if stuck is None else stuck
    names = [resolved(name) for name in targets]
    return look(config, profile, names, stuck=waiting, worker_pool=worker_pool, paths=files)


def recorded(snapshot: Snapshot, profile_name: str | None, targets: Iterable[str]) -> Situation:
    """Return the situation in a snapshot, with the host's own policy.

    A profile that the host did not have is this machine's.
    """
    machine, policy = snapshot.machine, snapshot.policy
    config = Config(profile=policy.active, site=policy.site)
    own = {profile.name: profile for profile in policy.profiles}
    wanted = profile_name or policy.active
    whole = own[wanted] if wanted in own else chosen_profile(wanted, config)
    profile = understood(whole)
    chosen = choose(machine, targets)
    filed = Journal(machine.boot_id, reverted=policy.reverted)
    record = HandsOff(ids=policy.rolled_back)
    rendered = {(module, option): text for module, option, text in policy.rendered}
    site = config.site  # its links were followed as the snapshot was taken
    return Situation(
        *(config, profile, machine, chosen.endpoints, chosen.ids, filed, record, ()),
        *(rendered, site),
        not_understood=not_understood(whole),
        elsewhere=True,
    )


def boot_site(config: Config, machine: Machine) -> Site:
    """Return the site for udev rules, with the disks that its links lead to now.

    udev cannot follow such links as it applies a rule.
    """
    return noted(machine, config.site, followed)


def waiting_for(claim: Claim) -> str:
    """Return why an endpoint with a stuck writer of an earlier run is not even read."""
    return f"a write of an earlier run (process {claim.pid}) is still waiting in the kernel"


def peek(path: Path, machine: Machine) -> Journal:
    """Return this boot's journal, an empty one where there is none.

    Raises JournalError where it cannot be read.
    """
    return journal.load_for(path, machine)[0]


def require_readable(files: Paths, *more: Path) -> None:
    """Raise UsageError where this user would get another answer than root, for want of a file.

    ``more`` are files that the answer hangs on beside hbatune's records.
    """
    if (path := unreadable(files, *more)) is not None:
        raise UsageError(
            f"{path} is root's to read, and without it the answer would be another one",
            hint="run it with sudo",
        )


def unreadable(files: Paths, *more: Path) -> Path | None:
    """Return the first of hbatune's records that this user may not read, None if there is none."""
    for path in (files.journal, files.hands_off_targets, files.claims, files.locked, *more):
        try:
            os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        except PermissionError:
            return path
        except OSError:
            continue
    return None


def resolved(name: str) -> str:
    """Return the kernel's name for a link such as /dev/disk/by-id/…; other names are unchanged.

    A link's own name is enough for a map (``mpatha``) and for what udev calls a disk.
    """
    links = (name, *(f"{folder}/{name}" for folder in _LINKS if "/" not in name))
    found = (followed(link) for link in links)
    return next((each for each, link in zip(found, links, strict=True) if each != link), name)


def followed_site(config: Config, machine: Machine) -> Site:
    """Return the site with the disks that its links lead to now."""
    return leading(machine, config.site, followed)


def take_snapshot(context: Context) -> Snapshot:
    """Return all facts of this host and its policy; traces of an earlier run are a note.

    Raises UsageError where its policy has mistakes.
    """
    paths = context.paths
    require_readable(paths, paths.counters)
    config, library = configuration(), installed_library()
    known = tuple(load_profile(each.name, library) for each in profiles(library))
    deadline = config.act.deadline_seconds
    # Not settled: that kills writers, and is only allowed under the lock.
    stuck = claims.outstanding(paths.claims)
    avoid = {claim.target: waiting_for(claim) for claim in stuck}
    gathered = gather(
        attributes(),
        of={kind: attributes(on=kind) for kind in (TargetKind.CONTROLLER, TargetKind.HOST)},
        deadline=deadline,
        avoid=avoid,
    )
    machine = interrupts.with_immovable(gathered, paths.locked)
    filed = peek(paths.journal, machine)
    record = hands_off.load(paths)
    context.reporter.note(Leftovers(filed, record, machine, tuple(stuck)))
    return Snapshot(
        machine=machine,
        health=observe(machine, deadline=deadline, avoid=avoid),
        policy=HostPolicy(
            active=config.profile,
            profiles=known,
            site=followed_site(config, machine),
            rolled_back=journal.rollback_record(filed, record, machine).ids,
            reverted=filed.reverted,
            rendered=tuple((*key, text) for key, text in modprobe.read(paths.modprobe).items()),
        ),
        hbatune=__version__,
        taken=int(time.time()),
        looks=seen.load_counted(paths.counters),
    )
