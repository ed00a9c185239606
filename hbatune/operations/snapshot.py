"""Operations on all facts and the policy of a host: take a snapshot, check, forecast, report."""

import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from hbatune import __version__, children
from hbatune.act import interrupts, journal, marks, rollback_record, system
from hbatune.act.journal import Journal
from hbatune.act.paths import Paths
from hbatune.checks.finding import CheckInput, Finding
from hbatune.errors import UsageError
from hbatune.facts import assembly, devices, health, model, names
from hbatune.facts.observe import observe_health
from hbatune.facts.targets import choose_targets
from hbatune.operations import situation as situations
from hbatune.plan import kernel_changes
from hbatune.plan.kernel_changes import CONTROLLER_FILES, FORECAST_FILES
from hbatune.plan.rows import HostLook, Plan, Row, State, count_settings
from hbatune.policy import budget, match, vendors
from hbatune.policy.config import Config, load_configuration
from hbatune.policy.library import Yardsticks, installed_library, list_profiles
from hbatune.policy.profile import Profile
from hbatune.settings.table import list_attributes
from hbatune.snapshot.file import HostPolicy, Snapshot, load_snapshot
from hbatune.workers import WorkerPool

if TYPE_CHECKING:
    from hbatune.probe.history import Record


_MODULES = "/lib/modules"
_MODINFO_S = 10.0  # for each module; it takes milliseconds, unless the disk does not answer

ShowTraces = Callable[[situations.Traces], None]
"""Shows the traces of an earlier run."""


def take_snapshot(show_traces: ShowTraces) -> Snapshot:
    """Return all facts of this host and its policy, and show the traces of an earlier run.

    Raises UsageError if its policy has errors.
    """
    config, profiles = load_configuration(), []
    for listed in list_profiles(installed_library()):
        name = None if listed.name == config.profile else listed.name  # with the rules in effect
        profiles.append(replace(vendors.load_chosen_profile(name, config), is_stored=False))
    return _read_host(show_traces, config, profiles)[0]


def _read_host(
    show_traces: ShowTraces, config: Config, profiles: Sequence[Profile] = (), *, log: bool = True
) -> tuple[Snapshot, Journal, situations.ScanMeans]:
    """Return a snapshot with these profiles, and the journal and the means of its machine."""
    vendors.load_enabled_rules(installed_library(), config.site)  # raises for an unknown use
    paths, seconds = Paths(), config.act.deadline_seconds
    situations.require_readable(paths, paths.counters)
    files = situations.list_adapter_attributes()
    files[model.TargetKind.CONTROLLER] = (*files[model.TargetKind.CONTROLLER], *CONTROLLER_FILES)
    with WorkerPool() as worker_pool:
        means = situations.unlocked_means(paths, worker_pool)
        gathered = means.gather((*list_attributes(), *FORECAST_FILES), config.act, of=files)
        avoid = situations.map_stuck_disks(means.stuck)
        observed = observe_health(
            gathered, deadline=seconds, avoid=avoid, with_log=log, worker_pool=worker_pool
        )
    filed, _ = journal.load_with_current_ids(paths.journal, gathered)
    machine = interrupts.with_records(gathered, filed, paths.locked)
    record = rollback_record.load(paths)
    show_traces(situations.Traces(filed, record, machine, means.stuck))
    options = system.read_module_options(paths.modprobe)
    snapshot = Snapshot(
        machine=machine,
        health=observed,
        policy=HostPolicy(
            active=config.profile,
            profiles=tuple(profiles),
            site=match.resolve_site_links(machine, config.site, devices.resolve_name),
            rolled_back=record.with_current_ids(machine).ids,
            reverted=filed.reverted,
            rendered=tuple((*key, text) for key, text in options.items()),
            rolled_back_all=record.everything,
        ),
        hbatune=__version__,
        taken=int(time.time()),
        looks=marks.load_counted(paths.counters),
    )
    return snapshot, filed, means


def get_error_counters(snapshot: Snapshot) -> health.ErrorCounters:
    """Return the error counters of a snapshot."""
    return health.collect_counters(snapshot.machine, snapshot.health, snapshot.taken)


def check_host(
    show_traces: ShowTraces,
    targets: Sequence[str],
    profile: str | None,
    *,
    file: Path | None,
    since: Path | None,
) -> tuple[CheckInput, tuple[Finding, ...], tuple[str, ...]]:
    """Check this machine, or the host of a snapshot ``file``, compared ``since`` an older one.

    Return the input of the checks, their findings, and ``not_understood`` of the situation. Without
    a ``profile``, the host's active profile is compared, if any. Without ``targets``, everything is
    checked. Nothing is written: the daemon stores the error counters to compare with. Raises
    UsageError for a profile or a target that does not exist.
    """
    if file is None:
        snapshot = _read_host(show_traces, load_configuration())[0]
    else:
        snapshot = load_snapshot(file)
        if since is not None:
            older = load_snapshot(since)
            before, current = older.machine, snapshot.machine
            # A host may have been renamed during a boot.
            if before.boot_id != current.boot_id and before.hostname != current.hostname:
                problem = f"{str(since)!r} is of another host, {before.hostname}"
                raise UsageError(problem, hint=f"name an earlier snapshot of {current.hostname}")
            snapshot = replace(snapshot, looks=(get_error_counters(older),))
    situation = None
    if profile or snapshot.policy.active:
        wanted = situations.SituationRequest(profile=profile, targets=targets, snapshot=snapshot)
        situation = situations.read_situation(wanted)
    inputs = make_check_input(snapshot, situation, targets)
    return inputs, _check_input(inputs), situation.not_understood if situation else ()


def look_at_host(show_traces: ShowTraces) -> HostLook:
    """Compare the active profile and run the checks, for `status` without a daemon.

    It writes nothing. Raises JournalError if the journal is damaged.
    """
    paths = Paths()
    installed = (paths.units / system.UNIT).exists()
    hidden = situations.find_unreadable(paths, paths.counters)
    filed = Journal("") if hidden else journal.load(paths.journal, assembly.read_boot_id())[0]
    is_interrupted = filed.run is not None and not filed.run.process.alive()
    unconfirmed = any(entry.doubt for entry in filed.entries)
    look = HostLook(
        rolled_back=rollback_record.load(paths).covers_all,
        hidden=None if hidden is None else str(hidden),
        values=None if hidden else len(filed.entries),
        unfinished=bool(filed.losses) or is_interrupted or unconfirmed,
        installed=installed,
        failed=installed and system.has_failed(),
    )
    try:
        config = load_configuration()
        look = replace(look, profile=config.profile)
        if hidden is not None:
            return look
        profile = vendors.load_chosen_profile(None, config) if config.profile else None
        (snapshot, recorded, means), situation = _read_host(show_traces, config), None
        look = replace(look, adapters=situations.list_serving_adapters(snapshot.machine))
        if profile is not None:
            host = snapshot.machine
            situation = situations.make_situation(config, profile, host, (), means, recorded)
            plan = situation.plan()
            counts = count_settings(plan.rows, situation.machine.endpoints)
            counts[State.UNREADABLE] += sum(disk.unread for disk in plan.left_alone)
            skipped = situations.list_skipped(plan.rows, host)
            look = replace(look, counts=counts, skipped=skipped, drift=plan.drift)
        findings = _check_input(make_check_input(snapshot, situation, ()))
    except UsageError as error:
        return replace(look, mistake=error.message)
    severities, lost_rules = _summarise_findings(findings)
    return replace(look, findings=severities, lost_rules=lost_rules)


def check_for_daemon(config: Config, profile: Profile) -> tuple[dict[str, int], tuple[str, ...]]:
    """Check this machine, and return the number of findings by severity and the lost rules.

    Store the error counters, so `check`, which writes nothing, can report increases. The daemon's
    unit may not read the kernel's log, so its failures are not counted.
    """
    snapshot, recorded, means = _read_host(lambda *_: None, config, log=False)
    situation = situations.make_situation(config, profile, snapshot.machine, (), means, recorded)
    findings = _check_input(make_check_input(snapshot, situation, ()))
    observations = health.retain_observations(snapshot.looks, get_error_counters(snapshot))
    marks.save_counted(Paths().counters, observations)
    return _summarise_findings(findings)


def _check_input(inputs: CheckInput) -> tuple[Finding, ...]:
    from hbatune.checks.registry import run_checks  # all checks, which a snapshot never needs

    return run_checks(inputs)


def _summarise_findings(findings: Sequence[Finding]) -> tuple[dict[str, int], tuple[str, ...]]:
    """Return the number of findings by severity, and the udev rules of others without effect."""
    lost = [finding.evidence.describe() for finding in findings if finding.id == "udev-rule-lost"]
    return Counter(str(finding.severity) for finding in findings), tuple(lost)


def make_check_input(
    snapshot: Snapshot, situation: situations.Situation | None, targets: Sequence[str]
) -> CheckInput:
    """Return the input of the checks for the targets, or for all.

    Without a situation it has no profile. Raises UsageError for a target that does not exist.
    """
    machine, counters = snapshot.machine, get_error_counters(snapshot)
    chosen = choose_targets(machine, targets)
    plan = situation.plan() if situation else Plan("", ())
    has_array = any(map(budget.is_shared, machine.endpoints))
    return CheckInput(
        machine=machine,
        health=snapshot.health,
        adapters=chosen.adapters,
        endpoints=chosen.endpoints,
        site=snapshot.policy.site,
        profile=situation.profile if situation else None,
        rows=plan.rows,
        counted=counters,
        earlier=health.find_earlier_counters(snapshot.looks, counters),
        looks=snapshot.looks,
        arrays=installed_library().arrays() if has_array else (),
        advice=situations.list_advice(machine, snapshot.policy.site, plan, chosen.ids),
    )


class MeasuredHost(Struct, frozen=True, kw_only=True):
    """A machine with its profile and plan, the journal of changes, and the measured results.

    ``profile`` and ``plan`` are None if no profile is active or named, as after a rollback. The
    settings ``not_understood`` are the situation's.
    """

    machine: model.Machine
    journal: Journal
    records: "tuple[Record, ...]"
    yardsticks: Yardsticks
    profile: Profile | None = None
    plan: Plan | None = None
    not_understood: tuple[str, ...] = ()


def read_measured_host(
    profile: str | None, *, snapshot: Path | None = None, results: Path | None = None
) -> MeasuredHost:
    """Read this machine, or the host of a snapshot, which contains no results.

    ``results`` is a copy of a host's history, used instead of this machine's.
    """
    from hbatune.probe import history  # 5 ms, which `status` and `check` would wait for

    paths, yardsticks = Paths(), installed_library().yardsticks()
    if results is not None:
        records = history.load_named(results).records
    else:
        records = () if snapshot else history.load(paths.history).records
    loaded = None if snapshot is None else load_snapshot(snapshot)
    active = loaded.policy.active if loaded else load_configuration().profile
    if profile is not None or active is not None:
        request = situations.SituationRequest(profile=profile, snapshot=loaded)
        situation = situations.read_situation(request)
        return MeasuredHost(
            machine=situation.machine,
            journal=situation.journal,
            records=records,
            yardsticks=yardsticks,
            profile=situation.profile,
            plan=situation.plan(),
            not_understood=situation.not_understood,
        )
    if loaded is None:
        situations.require_readable(paths)
        means = situations.unlocked_means(paths)
        machine, filed = means.gather_journal((), (), load_configuration().act)
    else:
        machine, filed = loaded.machine, Journal(loaded.machine.boot_id)
    return MeasuredHost(machine=machine, journal=filed, records=records, yardsticks=yardsticks)


class Forecast(Struct, frozen=True, kw_only=True):
    """The changes of a host from its ``kernel`` to the series ``then``.

    ``installed`` is the release of that series whose modules were read, or None.
    """

    hostname: str
    kernel: str
    then: str
    installed: str | None
    changes: tuple[kernel_changes.KernelChange, ...]


def forecast_host(show_traces: ShowTraces, kernel: str, snapshot_file: Path | None) -> Forecast:
    """Return the forecast for this host, or for the host of a snapshot.

    Raises UsageError if the rules do not cover one of the kernels.
    """
    then = kernel_changes.find_series(kernel)
    snapshot = take_snapshot(show_traces) if snapshot_file is None else load_snapshot(snapshot_file)
    machine, policy = snapshot.machine, snapshot.policy
    kernel_changes.find_series(machine.kernel, is_running=True)
    rows: tuple[Row, ...] = ()
    if policy.active is not None:
        rows = situations.read_situation(situations.SituationRequest(snapshot=snapshot)).plan().rows
    # The modules of this host tell nothing about the host of a snapshot.
    installed = None if snapshot_file else _read_modules(machine, then)
    return Forecast(
        hostname=machine.hostname,
        kernel=machine.kernel,
        then=then,
        installed=installed.release if installed else None,
        changes=kernel_changes.forecast_changes(
            machine, then, rows=rows, rendered=policy.rendered, installed=installed
        ),
    )


def _read_modules(machine: model.Machine, series: str) -> kernel_changes.InstalledModules | None:
    """Return the modules of the newest installed kernel of the series, if it does not run now.

    The options are from modinfo(8); None if it does not answer.
    """
    releases = filter(re.compile(rf"{re.escape(series)}\b").match, devices.list_names(_MODULES))
    release = max(releases, key=names.natural_key, default=machine.kernel)
    if release == machine.kernel:
        return None
    options: dict[str, frozenset[str]] = {}
    for driver in kernel_changes.list_modules(machine):
        try:
            done = children.run(("modinfo", "-k", release, "-F", "parm", driver), _MODINFO_S)
        except OSError:
            return None
        if done.returncode == 0:
            lines = done.stdout.decode("utf-8", "replace").splitlines()
            options[driver] = frozenset(line.partition(":")[0] for line in lines)
    return kernel_changes.InstalledModules(release, options)
