"""Gather the input of most operations: configuration, profile, machine, traces of earlier runs."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from hbatune.act import interrupts, journal, lock, rollback_record, system
from hbatune.act.journal import Journal
from hbatune.act.paths import Paths
from hbatune.act.rollback_record import RollbackRecord, RollbackRecords
from hbatune.errors import UsageError
from hbatune.facts import assembly, devices, processors
from hbatune.facts.attributes import BLOCK_SIZE_FILE
from hbatune.facts.machine import WHOLE_MACHINE, Scope, gather_machine
from hbatune.facts.model import Endpoint, Machine, MissingText, TargetKind, get_fact
from hbatune.facts.names import shorten_names
from hbatune.facts.survey import survey_requests
from hbatune.facts.targets import ChosenTargets, choose_targets
from hbatune.facts.udev import read_saved_texts
from hbatune.plan import joint_limits, rows
from hbatune.plan.make import EarlierChanges, PlanLimits, SetBefore, make_plan
from hbatune.policy import budget, match, vendors
from hbatune.policy import config as configuration
from hbatune.policy.library import installed_library
from hbatune.policy.profile import Leave, Profile, Rule
from hbatune.settings import table
from hbatune.settings.limits import BFQ, find_scheduler
from hbatune.shipped import fill_message
from hbatune.text.limit_text import Limit, LimitReason, describe_limit
from hbatune.workers import WorkerPool

if TYPE_CHECKING:
    from hbatune.plan.advice import Advice
    from hbatune.snapshot.file import Snapshot


class PartialScan(Struct, frozen=True):
    """The facts that a scan of some disks takes from earlier scans.

    ``other_requests`` is the memory of other disks' requests in bytes. The ``matcher`` caches the
    matches of earlier scans.
    """

    other_requests: int
    matcher: match.Matcher


class Traces(Struct, frozen=True):
    """The traces of earlier runs on a machine, and the names in [site] that match nothing on it.

    ``stuck`` are writers that are still in the kernel.
    """

    journal: Journal
    rollbacks: RollbackRecords
    machine: Machine
    stuck: tuple[lock.Claim, ...]
    unmatched: tuple[configuration.UnmatchedName, ...] = ()


class Situation(Struct, frozen=True):
    """A machine and its profile, with the traces of earlier runs.

    ``chosen`` are the requested targets. ``rollbacks`` are the records that no apply has lifted.
    ``stuck`` are writers of an earlier run that are still in the kernel. ``rendered`` are the
    options for the next module load. ``site`` is from the configuration, with its links followed.
    ``not_understood`` are settings in a snapshot's rules that this version does not support, or not
    with these values. ``elsewhere`` is True for a snapshot's machine. ``part`` is None after a full
    scan.
    """

    config: configuration.Config
    profile: Profile
    machine: Machine
    chosen: ChosenTargets
    journal: Journal
    rollbacks: RollbackRecords
    stuck: tuple[lock.Claim, ...]
    rendered: Mapping[tuple[str, str], str]
    site: configuration.Site
    not_understood: tuple[str, ...] = ()
    elsewhere: bool = False
    part: PartialScan | None = None

    def plan(
        self,
        *,
        named: bool = False,
        disrupt: bool = False,
        reconcile: bool = True,
        untouched: Callable[[str, str], bool] = lambda id, setting: False,
    ) -> rows.Plan:
        """Plan the profile for the chosen targets; rollbacks do not exclude ``named`` ones.

        ``disrupt`` allows settings that disrupt the I/O of an entire adapter. With ``reconcile``,
        values that an earlier run has set and the profile no longer specifies are restored to their
        baselines. ``untouched`` returns, by id and setting, whether a value will not be written
        regardless of the plan.
        """
        excluded = {}
        if not named:
            excluded = dict.fromkeys(self.rollbacks.ids, LimitReason(Limit.ROLLED_BACK))
        # Also for named targets: only [site] itself lifts its exclusions.
        if self.site.exclude:
            excluded_ids = match.SiteNames(self.machine).meant(self.site.exclude)
            excluded.update(dict.fromkeys(excluded_ids, LimitReason(Limit.EXCLUDED)))
        limits = PlanLimits(
            excluded=excluded,
            site_rules=self._make_site_rules(),
            disrupt=disrupt,
            will_not_write=untouched,
            memory_share=self.config.act.memory_share,
            elsewhere=self.part.other_requests if self.part else 0,
        )
        earlier = EarlierChanges(
            reverted=frozenset(() if named else self.journal.reverted),
            set_before=self._find_set_values() if reconcile else {},
            original_depths=self._find_original_depths(),
            set_by_us=self._was_touched,
            targets_named=named,
            scheduler_rules=cache(self._find_scheduler_rules),
        )
        return make_plan(
            self.machine,
            self.profile,
            only=self.chosen.ids,
            limits=limits,
            earlier=earlier,
            matcher=self.part.matcher if self.part else None,
        )

    def lacks_peers(self) -> bool:
        """Return whether this part would raise a depth that equal disks outside of it explain.

        They also explain a new disk's depth, which an administrator's udev rule may have lowered.
        """
        defaults = joint_limits.find_default_depths(self.machine)
        for row in self.plan().drift:
            default = defaults.get(row.id) if row.setting == table.QUEUE_DEPTH else None
            if default and default.by_peers and not self._was_touched(row.id, row.setting):
                return True
        return False

    def advice(self, plan: rows.Plan) -> tuple[Advice, ...]:
        """Return the vendors' advice for the chosen targets, if the configuration requests it."""
        return list_advice(self.machine, self.site, plan, self.chosen.ids)

    @property
    def unmatched(self) -> tuple[configuration.UnmatchedName, ...]:
        """The names in [site] that match nothing on this machine."""
        return match.list_unmatched_names(self.machine, self.site)

    @property
    def traces(self) -> Traces:
        """The traces of earlier runs and the unmatched names, which every command reports."""
        return Traces(self.journal, self.rollbacks, self.machine, self.stuck, self.unmatched)

    def _make_site_rules(self) -> Mapping[str, Rule]:
        if not (self.site.array or self.site.members):
            return {}
        library, file = vendors.find_library(self.profile), configuration.find_configuration_file()
        return budget.make_site_rules(self.machine, self.site, library.arrays(), str(file))

    def _find_set_values(self) -> Mapping[rows.RowKey, SetBefore]:
        """Return the values that earlier runs have set, except on rolled-back targets."""
        values, excluded = {}, self.rollbacks.ids
        for entry in self.journal.entries:
            is_set = (entry.value, entry.effect) != (None, None)
            if is_set and entry.setting in table.SETTINGS and entry.id not in excluded:
                values[entry.key] = SetBefore(entry.before, entry.ours, effect=entry.value is None)
        return values

    def _find_original_depths(self) -> Mapping[str, int]:
        """Return, by id, the queue depths before the first write of hbatune."""
        depths = {}
        for entry in self.journal.entries:
            if entry.setting == table.QUEUE_DEPTH and isinstance(entry.before, int):
                depths[entry.id] = entry.before
        return depths

    def _find_scheduler_rules(self) -> Mapping[str, str]:
        """Return, by id, the distribution's udev rules files that set bfq although nothing uses it.

        Rules and units are read only here, for the few hosts with bfq.
        """
        disks = [disk for disk in self.machine.endpoints if find_scheduler(disk.attributes) == BFQ]
        if self.elsewhere or not disks:
            return {}
        from hbatune.facts.observe import find_distribution_rules

        return find_distribution_rules(disks)

    def _was_touched(self, id: str, setting: str) -> bool:
        """Return whether hbatune, or its udev rule, has set or reset a setting in this boot.

        A rule saves the original value in udev's database, which is read only here, for few disks.
        """
        for entry in self.journal.entries:
            if entry.key == (id, setting) and (entry.value, entry.effect) != (None, None):
                return True
        if self.elsewhere:
            return False
        disks = [endpoint for endpoint in self.machine.endpoints if endpoint.id == id]
        saved = read_saved_texts(disks).get(id)
        return saved is not None and setting in table.parse_saved_values(saved.texts)


def list_advice(
    machine: Machine, site: configuration.Site, plan: rows.Plan, ids: Collection[str] | None = None
) -> tuple[Advice, ...]:
    """Return the vendors' advice on a plan, if the configuration requests it (``find_advice``)."""
    rules = vendors.load_enabled_rules(installed_library(), site, is_local=False)
    if not rules:  # as on most hosts
        return ()
    from hbatune.plan.advice import find_advice

    excluded = match.SiteNames(machine).meant(site.exclude) if site.exclude else ()
    return find_advice(machine, rules, plan, uses=site.uses, excluded=excluded, only=ids)


class ScanMeans(Struct, frozen=True):
    """The means of a scan: hbatune's files, and the workers that read.

    ``stuck`` are writers of an earlier run that are still in the kernel. Without a ``worker_pool``,
    each scan starts its own workers.
    """

    paths: Paths
    stuck: tuple[lock.Claim, ...]
    worker_pool: WorkerPool | None = None

    def gather(
        self,
        attributes: Sequence[str],
        act: configuration.ActConfig,
        scope: Scope = WHOLE_MACHINE,
        of: Mapping[TargetKind, Sequence[str]] | None = None,
    ) -> Machine:
        """Read the machine (``gather_machine``), except disks with a stuck writer."""
        return gather_machine(
            attributes,
            scope,
            of=of,
            deadline=act.deadline_seconds,
            avoid=map_stuck_disks(self.stuck),
            worker_pool=self.worker_pool,
        )

    def gather_journal(
        self,
        disks: Collection[str],
        attributes: Sequence[str],
        act: configuration.ActConfig,
        of: Mapping[TargetKind, Sequence[str]] | None = None,
    ) -> tuple[Machine, Journal]:
        """Return the machine with these disks, or with all if ``disks`` is empty, and its journal.

        Everything is gathered if an earlier run has left unconfirmed writes, which every command
        reports.
        """
        machine = self.gather(attributes, act, Scope(disks), of)
        filed, _ = journal.load_with_current_ids(self.paths.journal, machine)
        if disks and any(entry.doubt is not None for entry in filed.entries):
            return self.gather_journal((), attributes, act, of)
        return machine, filed


class SituationRequest(Struct, frozen=True, kw_only=True):
    """The machine, the profile and the targets of a situation.

    Without a ``profile`` or its name, it is the active one. Without ``targets``, everything is
    chosen. Without a ``config``, the configuration is loaded. A ``snapshot`` replaces this machine
    and its policy. Without ``means``, the scan does not take the lock. ``extra_settings`` are read
    in addition to the profile's, and for ``probes`` the facts of disks that probes need. With
    ``narrow``, the machine is reduced to the named disks if nothing else affects them.
    ``firmware`` is whether a firmware is read again, or None to leave it out (``act.firmware``).
    """

    profile: Profile | str | None = None
    targets: Collection[str] = ()
    config: configuration.Config | None = None
    snapshot: Snapshot | Path | None = None
    means: ScanMeans | None = None
    extra_settings: Collection[str] = ()
    probes: bool = False
    narrow: bool = False
    firmware: bool | None = None


def read_situation(request: SituationRequest) -> Situation:
    """Read the configuration, the profile and the machine, or all of them from a snapshot.

    Raises UsageError for an unknown name, and if this user cannot read hbatune's records.
    """
    if request.snapshot is not None:
        return _read_snapshot(request, request.snapshot)
    config, profile = request.config or configuration.load_configuration(), request.profile
    if not isinstance(profile, Profile):
        profile = vendors.load_chosen_profile(profile, config)
    means = request.means or unlocked_means(Paths())
    files = means.paths
    require_readable(files)
    names = request.targets
    changed = journal.list_changed_settings(files.journal, assembly.read_boot_id())
    wanted = list_needed_settings(profile, config.site, changed) | set(request.extra_settings)
    attributes = table.list_attributes(wanted) + ((BLOCK_SIZE_FILE,) if request.probes else ())
    adapter_files = list_adapter_attributes(wanted)

    def scan(disks: Collection[str]) -> Situation:
        machine, filed = means.gather_journal(disks, attributes, config.act, adapter_files)
        machine = interrupts.with_records(machine, filed, files.locked)
        if config.site.adapter and request.firmware is not None:
            from hbatune.act.firmware import attach_pages  # few sites open a firmware

            survey = partial(survey_requests, deadline=config.act.deadline_seconds)
            pages = partial(attach_pages, machine, config.site, files.pages, survey)
            machine = pages(fresh=request.firmware)
        return make_situation(config, profile, machine, names, means, filed)

    # LUNs share the budget of an array with other LUNs, which have to be counted.
    if request.narrow and names and not config.site.array:
        narrowed = scan(names)
        # A name in [site] may belong to a disk that was not scanned.
        if not narrowed.unmatched and not narrowed.lacks_peers():
            return narrowed
    return scan(())


def list_adapter_attributes(
    names: Iterable[str] = table.SETTINGS,
) -> dict[TargetKind, Sequence[str]]:
    """Return the files to read for these settings of NVMe controllers and SCSI hosts."""
    kinds = (TargetKind.CONTROLLER, TargetKind.HOST)
    return {kind: table.list_attributes(names, kind) for kind in kinds}


def locked_means(paths: Paths, patience: float, worker_pool: WorkerPool) -> ScanMeans:
    """Return the means of a scan under the lock; wait ``patience`` seconds for earlier writers."""
    return ScanMeans(paths, tuple(lock.settle_claims(paths.claims, patience=patience)), worker_pool)


def unlocked_means(paths: Paths, worker_pool: WorkerPool | None = None) -> ScanMeans:
    """Return the means of a scan without the lock. It settles no claims: that kills writers."""
    return ScanMeans(paths, tuple(lock.find_outstanding_claims(paths.claims)), worker_pool)


def list_needed_settings(
    profile: Profile, site: configuration.Site, changed: Iterable[str]
) -> frozenset[str]:
    """Return the settings whose values a plan needs, including those ``changed`` in this boot."""
    # Values that earlier profiles have set may have to be restored, so they are read as well.
    wanted = set(changed) & table.SETTINGS.keys()
    # The limits of many settings depend on the scheduler, even if no rule names it.
    wanted.add(table.SCHEDULER)
    for rule in profile.rules:
        if not isinstance(rule.effect, Leave):
            wanted.add(rule.setting)
    for entry in vendors.load_enabled_rules(installed_library(), site):
        wanted.add(entry.rule.setting)
    return frozenset(wanted)


def map_stuck_disks(stuck: Iterable[lock.Claim]) -> dict[str, str]:
    """Return the disks with a stuck writer, with the reason. The writer would block a read."""
    return {claim.target: MissingText.WAITING_WRITE.format(claim.pid) for claim in stuck}


def make_situation(
    config: configuration.Config,
    profile: Profile,
    machine: Machine,
    names: Collection[str],
    means: ScanMeans,
    filed: Journal,
) -> Situation:
    """Return a scanned machine's situation with its journal ``filed`` and ``names`` chosen."""
    machine = processors.with_probing(machine, isolated=config.probe.isolated)
    site = match.resolve_site_links(machine, config.site, devices.resolve_name)
    machine = match.with_uses(machine, site, profile)
    return Situation(
        config,
        profile,
        machine,
        chosen=choose_targets(machine, names),
        journal=filed,
        rollbacks=rollback_record.load(means.paths).with_current_ids(machine),
        stuck=means.stuck,
        rendered=system.read_module_options(means.paths.modprobe),
        site=site,
    )


def _read_snapshot(request: SituationRequest, source: Snapshot | Path) -> Situation:
    """Return a snapshot's situation with its host's policy; this machine's profile if missing."""
    from hbatune.snapshot import file  # not needed for this machine

    snapshot = file.load_snapshot(source) if isinstance(source, Path) else source
    machine, policy = snapshot.machine, snapshot.policy
    config, profile = configuration.Config(profile=policy.active, site=policy.site), request.profile
    if not isinstance(profile, Profile):
        name = profile or policy.active
        host_profiles = {profile.name: profile for profile in policy.profiles}
        profile = host_profiles.get(name or "") or vendors.load_chosen_profile(profile, config)
    return Situation(
        config,
        file.drop_unknown_rules(profile),
        match.with_uses(machine, policy.site, profile),
        chosen=choose_targets(machine, request.targets),
        journal=Journal(machine.boot_id, reverted=policy.reverted),
        rollbacks=RollbackRecords((RollbackRecord("", policy.rolled_back),)),
        stuck=(),
        rendered={(module, option): text for module, option, text in policy.rendered},
        site=policy.site,  # its links were followed as the snapshot was taken
        not_understood=file.list_unknown_settings(profile),
        elsewhere=True,
    )


def require_readable(files: Paths, *extra_files: Path) -> None:
    """Raise UsageError if this user cannot read one of hbatune's records or of the extra files."""
    if (path := find_unreadable(files, *extra_files)) is not None:
        problem = f"{path} is root's to read, and without it the answer would be another one"
        raise UsageError(problem, hint="run it with sudo")


def find_unreadable(files: Paths, *extra_files: Path) -> Path | None:
    """Return the first record that this user may not read, or None."""
    for path in (files.journal, files.rollbacks, files.claims, files.locked, *extra_files):
        try:
            os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        except PermissionError:
            return path
        except OSError:
            continue
    return None


def list_shared_disks(
    plan_rows: Iterable[rows.Row], machine: Machine, disks: Iterable[Endpoint]
) -> list[str]:
    """Return those disks on a shared array that have no row, as [site] does not describe it."""
    planned = {row.target for row in plan_rows}
    planned |= {path.map or "" for path in machine.endpoints if path.target in planned}
    return [d.target for d in disks if budget.is_shared(d) and d.target not in planned]


def list_skipped(plan_rows: Collection[rows.Row], machine: Machine) -> tuple[str, ...]:
    """Return the disks on a shared array that is not described, then the excluded settings."""
    skipped = []
    if shared := list_shared_disks(plan_rows, machine, machine.endpoints):
        skipped.append(fill_message("plan", "shared_row", disks=" ".join(shorten_names(shared))))
    for row in plan_rows:
        if row.state is rows.State.EXCLUDED:
            skipped.append(f"{row.target} {row.setting} {row.current}: {describe_limit(row.limit)}")
    return tuple(skipped)


def list_serving_adapters(machine: Machine) -> tuple[rows.ServingAdapter, ...]:
    """Return the adapters that serve disks, those with most disks first."""
    kinds: dict[str, Counter[str]] = {}
    for disk in machine.endpoints:
        kinds.setdefault(disk.adapter or "", Counter())[disk.kind] += 1
    serving = []
    for adapter in machine.adapters:
        if adapter.target in kinds:
            serving.append(
                rows.ServingAdapter(
                    target=adapter.target,
                    product=adapter.product or adapter.family,
                    disks=kinds[adapter.target],
                    link=adapter.link,
                    driver=get_fact(adapter.driver_version),
                    firmware=get_fact(adapter.firmware),
                )
            )
    return tuple(sorted(serving, key=lambda adapter: -sum(adapter.disks.values())))
