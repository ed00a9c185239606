"""The start of most operations: configuration, profile, machine, and traces of earlier runs."""

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from hbatune.act import interrupts, journal, lock, rollback_record, system
from hbatune.act.journal import Journal
from hbatune.act.lock import Claim
from hbatune.act.paths import Paths
from hbatune.act.rollback_record import RollbackRecords
from hbatune.errors import UsageError
from hbatune.facts.assembly import boot_id
from hbatune.facts.devices import followed
from hbatune.facts.ids import is_former
from hbatune.facts.machine import gather
from hbatune.facts.model import Endpoint, Machine, TargetKind
from hbatune.facts.processors import with_probing
from hbatune.facts.targets import choose
from hbatune.facts.udev import saved
from hbatune.plan import make
from hbatune.plan.make import Key, SetBefore
from hbatune.plan.rows import Plan
from hbatune.policy import budget
from hbatune.policy.budget import DepthBudget
from hbatune.policy.chosen import chosen_profile, configuration, configuration_file
from hbatune.policy.config import Config, Site, Unmatched
from hbatune.policy.library import installed_library
from hbatune.policy.match import Matcher, SiteNames, leading, noted, unmatched
from hbatune.policy.profile import Leave, Profile, Rule
from hbatune.policy.vendors import asked
from hbatune.settings.table import SETTINGS, attributes, saved_values
from hbatune.workers import WorkerPool

if TYPE_CHECKING:
    from hbatune.plan.advice import Advice
    from hbatune.snapshot.file import Snapshot

REVERTED = "reverted: it cost more than the profile tolerates; name it to `apply` to try again"
ROLLED_BACK = "rolled back; name it to `apply` to have it tuned again"
EXCLUDED = "excluded in [site]"
_OF_ADAPTERS = (TargetKind.CONTROLLER, TargetKind.HOST)
_LINKS = ("/dev/mapper", "/dev/disk/by-id")
"""Folders of links to disks, whose names people use without the folder."""


class Situation(Struct, frozen=True):
    """A machine and the profile for it, with the traces that earlier runs left.

    ``chosen`` are the endpoints that were asked for and ``ids`` the ids of all targets that were,
    None for everything. ``rollbacks`` are those that no apply has lifted. ``stuck`` are writers of
    an earlier run that are still in the kernel, ``rendered`` the options for the next module load.
    ``site`` is the configuration's own, with its links followed. ``not_understood`` are settings of
    a snapshot's rules that this version does not know, or not with such values. ``elsewhere`` says
    that the machine is a snapshot's. ``rest`` are the bytes that requests of other disks take where
    the machine is only a part of this one, None where it is the whole. A ``matcher`` remembers what
    earlier looks have matched.
    """

    config: Config
    profile: Profile
    machine: Machine
    chosen: tuple[Endpoint, ...]
    ids: frozenset[str] | None
    journal: Journal
    rollbacks: RollbackRecords
    stuck: tuple[Claim, ...]
    rendered: Mapping[tuple[str, str], str]
    site: Site
    not_understood: tuple[str, ...] = ()
    elsewhere: bool = False
    rest: int | None = None
    matcher: Matcher | None = None

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
            elsewhere=self.rest or 0,
            set_before=self._set_before() if reconcile else {},
            untouched=untouched,
            touched=self._touched,
            named=named,
            matcher=self.matcher,
        )

    def advice(self, plan: Plan) -> "tuple[Advice, ...]":
        """Return what vendors advise for the chosen targets, where the site asks for it."""
        return advice_for(self.machine, self.site, plan, self.ids)

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
        if not (self.site.array or self.site.members):
            return {}
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
            and entry.id not in self.rollbacks.ids
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
        reasons = {} if named else dict.fromkeys(self.rollbacks.ids, ROLLED_BACK)
        # For named targets as well: only [site] itself lifts its exclusions.
        if self.site.exclude:
            meant = SiteNames(self.machine).meant(self.site.exclude)
            reasons.update(dict.fromkeys(meant, EXCLUDED))
        return reasons

    @property
    def unmatched(self) -> tuple[Unmatched, ...]:
        """The names in [site] that match nothing on this machine."""
        return unmatched(self.machine, self.site)


def advice_for(
    machine: Machine, site: Site, plan: Plan, only: Collection[str] | None = None
) -> "tuple[Advice, ...]":
    """Return what vendors advise beside a plan, where the site asks for it (``advise``).

    Raises ``PolicyError`` for a use that no vendor has advice for.
    """
    rules = asked(installed_library(), site)
    if not rules:  # as on most hosts
        return ()
    from hbatune.plan.advice import advise

    excluded = SiteNames(machine).meant(site.exclude) if site.exclude else ()
    return advise(machine, rules, plan, uses=site.uses, excluded=excluded, only=only)


def look(
    config: Config,
    profile: Profile,
    names: Collection[str] = (),
    *,
    stuck: Iterable[Claim],
    worker_pool: WorkerPool | None = None,
    paths: Paths | None = None,
    more: Collection[str] = (),
    narrow: bool = False,
) -> Situation:
    """Read the machine, and return the situation with this profile for the named targets, or all.

    ``stuck`` are writers of an earlier run that are still in the kernel; ``more`` are settings to
    read besides the profile's. With ``narrow``, the machine is no more than the named disks where
    that tells all there is to say of them. Raises UsageError for an unknown name.
    """
    waiting, files = tuple(stuck), paths or Paths()
    changed = journal.settings_set(files.journal, boot_id())
    wanted = wanted_settings(profile, config.site, changed) | set(more)

    def gathered(disks: Collection[str]) -> Machine:
        return gather(
            attributes(wanted),
            of={kind: attributes(wanted, kind) for kind in _OF_ADAPTERS},
            disks=disks,
            deadline=config.act.deadline_seconds,
            avoid=avoided(waiting),
            worker_pool=worker_pool,
        )

    def situation(disks: Collection[str]) -> Situation:
        machine, filed = noted_machine(gathered, disks, files)
        machine = interrupts.with_immovable(machine, files.locked)
        machine = with_probing(machine, isolated=config.probe.isolated)
        return made_situation(config, profile, machine, names, waiting, files, filed)

    # LUNs share the budget of an array with others, which have to be counted.
    if narrow and names and not config.site.array:
        narrowed = situation(names)
        # A name in [site] may be that of a disk that was not looked at.
        if not narrowed.unmatched:
            return narrowed
    return situation(())


def noted_machine(
    gathered: Callable[[Collection[str]], Machine], disks: Collection[str], files: Paths
) -> tuple[Machine, Journal]:
    """Return the machine with these disks, or with all where there are none, and its journal.

    Everything is gathered where an earlier run has noted what only the whole machine tells: ids
    of the former form, and writes in doubt, of which every command tells.
    """
    machine = gathered(disks)
    filed = peek(files.journal, machine)
    if not disks:
        return machine, filed
    record = rollback_record.load(files)
    noted = {*record.ids, *record.lifted, *filed.excluded, *(each.id for each in filed.reverted)}
    noted |= {entry.id for entry in filed.entries}
    if any(entry.doubt is not None for entry in filed.entries) or any(map(is_former, noted)):
        machine = gathered(())
        filed = peek(files.journal, machine)
    return machine, filed


def wanted_settings(profile: Profile, site: Site, changed: Iterable[str]) -> frozenset[str]:
    """Return the settings whose values a plan needs, those ``changed`` in this boot among them."""
    # The limits of many settings depend on the scheduler, whether a rule names it or not.
    wanted = {"scheduler"}
    wanted |= {rule.setting for rule in profile.rules if not isinstance(rule.effect, Leave)}
    # Values that earlier profiles have set may have to go back, so they are read as well.
    wanted |= {name for name in changed if name in SETTINGS}
    wanted |= {each.rule.setting for each in asked(installed_library(), site)}
    return frozenset(wanted)


def avoided(waiting: Iterable[Claim]) -> dict[str, str]:
    """Return the disks with a stuck writer, with the reason: a read would hang behind it."""
    return {claim.target: waiting_for(claim) for claim in waiting}


def made_situation(
    config: Config,
    profile: Profile,
    machine: Machine,
    names: Collection[str],
    waiting: tuple[Claim, ...],
    files: Paths,
    filed: Journal,
) -> Situation:
    """Return the situation of a machine that was read: the ``names`` chosen, ``files`` looked at.

    ``waiting`` are the stuck writers of an earlier run, ``filed`` is the journal for this machine.
    """
    chosen = choose(machine, names)
    rendered = system.read_module_options(files.modprobe)
    records = journal.current_records(filed, rollback_record.load(files), machine)
    site = followed_site(config, machine)
    return Situation(
        config,
        profile,
        machine,
        chosen.endpoints,
        chosen.ids,
        filed,
        records,
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
    more: Collection[str] = (),
    narrow: bool = False,
) -> Situation:
    """Read the configuration, the profile and the machine, or all of them from a ``snapshot``.

    ``more`` and ``narrow`` are as for ``look``. Raises UsageError as each of them does.
    """
    if snapshot is not None:
        from hbatune.snapshot.file import load

        return situation_in(load(snapshot), profile_name, targets)
    config = configuration()
    profile = chosen_profile(profile_name, config)
    files = paths or Paths()
    require_readable(files)
    # A caller without the lock must not settle them, since that kills writers.
    waiting = lock.outstanding_claims(files.claims) if stuck is None else stuck
    names = [resolved(name) for name in targets]
    return look(
        config,
        profile,
        names,
        stuck=waiting,
        worker_pool=worker_pool,
        paths=files,
        more=more,
        narrow=narrow,
    )


def situation_in(
    snapshot: "Snapshot", profile_name: str | None, targets: Iterable[str]
) -> Situation:
    """Return the situation in a snapshot, with the host's own policy.

    A profile that the host did not have is this machine's.
    """
    from hbatune.snapshot.file import not_understood, understood  # to take one needs neither

    machine, policy = snapshot.machine, snapshot.policy
    config = Config(profile=policy.active, site=policy.site)
    own = {profile.name: profile for profile in policy.profiles}
    wanted = profile_name or policy.active
    whole = own[wanted] if wanted in own else chosen_profile(wanted, config)
    profile = understood(whole)
    chosen = choose(machine, targets)
    filed = Journal(machine.boot_id, reverted=policy.reverted)
    record = RollbackRecords((rollback_record.RollbackRecord("", policy.rolled_back),))
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
    records = (files.rollbacks, files.hands_off_targets)
    for path in (files.journal, *records, files.claims, files.locked, *more):
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
