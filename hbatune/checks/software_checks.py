"""Checks of software: other tools, firmware and driver versions, and vendor advice."""

import re
from collections.abc import Collection, Iterator
from fnmatch import fnmatchcase

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from hbatune.act.paths import Paths
from hbatune.checks.finding import Check, CheckEvidence, CheckInput, Finding, Severity
from hbatune.facts import health, services
from hbatune.facts.model import Attribute, Endpoint, Missing, Reason
from hbatune.plan.advice import Stance
from hbatune.plan.rows import State
from hbatune.settings import limits, table
from hbatune.shipped import load_texts
from hbatune.text.limit_text import describe_limit

_PLACED = (State.OK, State.DRIFT)
_DIGITS = re.compile(r"[0-9a-f]{5}")  # part of a WWN or map name, but of no vendor name
_READ_BY_IOTUNE = frozenset({"nr_requests", "scheduler", "nomerges"})
_NAMES = {setting.path.rpartition("/")[2]: name for name, setting in table.SETTINGS.items()}
_NAMES["smp_affinity"] = table.IRQ_AFFINITY  # the same as smp_affinity_list, in another form


class _UnreadTuned(CheckEvidence, frozen=True):
    unread: str


class _RunningTuned(CheckEvidence, frozen=True):
    profile: str
    values: tuple[str, ...]
    settings: tuple[str, ...]
    files: tuple[str, ...]
    running: bool

    def describe(self) -> str:
        verb = "is running with" if self.running else "applies, without a daemon,"
        return self._fill_text("description", verb=verb)


def find_tuned(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find a running or one-shot tuned: advice if it sets a planned or vendor-advised setting."""
    tuned, is_running = inputs.health.tuned, inputs.health.daemons.get("tuned") is True
    if not is_running and not isinstance(tuned, health.TunedProfile):
        return
    if isinstance(tuned, Missing):
        yield check.report_machine(Severity.INFO, _UnreadTuned(tuned.text or str(tuned.reason)))
        return
    planned = _list_placed(inputs) | {advice.setting for advice in inputs.advice}
    values, conflicts, files = [], set(), set()
    for write in tuned.writes:
        setting = _find_setting(write.attribute)
        if setting is not None:
            values.append(f"{setting} {write.value}")
        if setting in planned:
            conflicts.add(setting)
            files.add(write.file)
    evidence = _RunningTuned(
        tuned.names, tuple(values), tuple(sorted(conflicts)), tuple(sorted(files)), is_running
    )
    yield check.report_machine(Severity.ADVICE if conflicts else Severity.INFO, evidence)


class _RunningIrqbalance(CheckEvidence, frozen=True):
    placed: int
    asks: tuple[str, ...]
    policy: str
    start: str | None


def find_irqbalance(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find a running irqbalance, which moves all movable interrupts.

    It is advice if the profile places interrupts and irqbalance does not run hbatune's policy
    script, which excludes these interrupts.
    """
    if inputs.health.daemons.get("irqbalance") is not True:
        return
    placed = sum(row.setting == table.IRQ_AFFINITY and row.state in _PLACED for row in inputs.rows)
    policy, policies = str(Paths.irq_policy), inputs.health.irq_policies
    start = policy if placed and policy not in policies else None
    evidence = _RunningIrqbalance(placed, policies, policy, start)
    yield check.report_machine(Severity.ADVICE if start else Severity.INFO, evidence)


class _ForeignRule(CheckEvidence, frozen=True):
    setting: str
    value: str | None
    file: str
    line: int
    of: tuple[str, ...]


def find_udev_rules(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find other udev rules for hbatune's settings. They conflict if the profile sets them too.

    Rules for vendors without a device on this machine are skipped: nvme-cli ships some.
    """
    wanted = {rule.setting for rule in inputs.profile.rules} if inputs.profile else set()
    names = {adapter.product for adapter in inputs.machine.adapters if adapter.product}
    names.update(*((disk.vendor, disk.model) for disk in inputs.machine.endpoints))
    names |= {name.replace(" ", "_") for name in names}  # as in udev (ID_MODEL)
    for rule in inputs.health.udev_rules:
        setting = _find_setting(rule.attribute)
        if setting is not None and not _is_elsewhere(rule, names):
            severity = Severity.ADVICE if setting in wanted else Severity.INFO
            evidence = _ForeignRule(setting, rule.value, rule.file, rule.line, rule.of)
            yield check.report_machine(severity, evidence)


class _ForeignOption(CheckEvidence, frozen=True):
    option: str
    value: str
    file: str
    line: int
    overridden: bool

    def advise(self, target: str) -> str:
        part = "overridden" if self.overridden else "advice"
        return self._fill_text(part, options_file=str(Paths.modprobe))


def find_module_options(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find options of the adapters' modules that others have set for the next load.

    modprobe reads the files by name, and the last line of an option holds. If the profile has the
    option, a line in a later file overrides hbatune's.
    """
    wanted = {(r.module, r.option) for r in inputs.profile.options} if inputs.profile else set()
    for line in inputs.health.module_options:
        is_wanted = (line.module, line.option) in wanted
        is_last = is_wanted and line.file.rpartition("/")[2] > Paths.modprobe.name
        name = f"{line.module}.{line.option}"
        evidence = _ForeignOption(name, line.value, line.file, line.line, is_last)
        yield check.report_machine(Severity.ADVICE if is_last else Severity.INFO, evidence)


class _UnusedShares(CheckEvidence, frozen=True):
    units: tuple[str, ...]


def find_unused_shares(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find units whose I/O weights or priorities have no effect.

    Only bfq uses the weights. mq-deadline uses the priorities of ionice as well.
    """
    schedulers = {limits.find_scheduler(endpoint.attributes) for endpoint in inputs.endpoints}
    units = []
    for share, names in inputs.health.io_shares.items():
        if share != services.IONICE or "mq-deadline" not in schedulers:
            units.append(f"{', '.join(names)} ({share})")
    if units and limits.BFQ not in schedulers:
        yield check.report_machine(Severity.INFO, _UnusedShares(tuple(units)))


class _IgnoredElevator(CheckEvidence, frozen=True):
    option: str


def find_ignored_elevator(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find the option elevator=, which no longer sets the scheduler."""
    if (option := inputs.health.elevator) is not None:
        yield check.report_machine(Severity.ADVICE, _IgnoredElevator(option))


class _MissingFio(CheckEvidence, frozen=True):
    """fio is not installed."""


def find_missing_fio(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Report that fio is missing, which probes require."""
    if inputs.health.tools.get("fio") is False:
        yield check.report_machine(Severity.INFO, _MissingFio())


class _InstalledIotune(CheckEvidence, frozen=True):
    settings: tuple[str, ...]


def find_iotune(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find iotune if the plan sets a setting that it reads its depth from or warns about."""
    settings = tuple(sorted(_list_placed(inputs) & _READ_BY_IOTUNE))
    if settings and inputs.health.tools.get("iotune") is True:
        yield check.report_machine(Severity.INFO, _InstalledIotune(settings))


class _HiddenProcess(CheckEvidence, frozen=True):
    daemons: tuple[str, ...]
    process: str | UnsetType | None = UNSET
    unit: str | UnsetType = UNSET


def find_hidden_processes(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find daemons that may run: processes are hidden, or a process only has that name."""
    hidden, unproven = [], []
    for daemon, state in inputs.health.daemons.items():
        if isinstance(state, Missing) and state.reason is Reason.UNPARSABLE:
            unproven.append(_HiddenProcess((daemon,), state.text, f"{daemon}.service"))
        elif isinstance(state, Missing):
            hidden.append(daemon)
    if hidden:
        yield check.report_machine(Severity.ADVICE, _HiddenProcess(tuple(hidden)))
    for evidence in unproven:
        yield check.report_machine(Severity.ADVICE, evidence)


class _UnapprovedVersion(CheckEvidence, frozen=True):
    """A version that is not approved, or that is unknown: ``unread`` is then the reason."""

    version: str | None
    approved: tuple[str, ...]
    unread: str | UnsetType = UNSET


class _UnapprovedFirmware(_UnapprovedVersion, frozen=True):
    """The version of an adapter's firmware."""


class _UnapprovedDriver(_UnapprovedVersion, frozen=True):
    """The version of an adapter's driver."""


def find_unapproved(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find firmware, or drivers, that are not approved, or on the list and unreadable.

    A driver without a version has the kernel's version.
    """
    is_driver = check.id == "driver-not-approved"
    evidence = _UnapprovedDriver if is_driver else _UnapprovedFirmware
    for adapter in inputs.adapters:
        approved: tuple[str, ...] = ()
        for entry in inputs.site.approved:
            if entry.family == adapter.family and fnmatchcase(adapter.product or "", entry.product):
                approved += entry.driver if is_driver else entry.firmware
        version = adapter.driver_version if is_driver else adapter.firmware
        if is_driver and isinstance(version, Missing) and version.reason is Reason.ABSENT:
            version = inputs.machine.kernel
        if not approved:
            continue
        if isinstance(version, Missing):
            # An unknown version is neither approved nor unapproved.
            unread = version.text or str(version.reason)
            yield check.report(Severity.ADVICE, adapter, evidence(None, approved, unread))
        elif not any(fnmatchcase(version, glob) for glob in approved):
            yield check.report(Severity.WARNING, adapter, evidence(version, approved))


def _list_placed(inputs: CheckInput) -> set[str]:
    """Return the settings that the plan sets."""
    return {row.setting for row in inputs.rows if row.state in _PLACED}


def _find_setting(attribute: str) -> str | None:
    """Return the setting of a kernel attribute, or None if it has no setting."""
    return _NAMES.get(attribute.rpartition("/")[2])


def _is_elsewhere(rule: health.UdevRule, names: Collection[str]) -> bool:
    """Return whether a rule matches only by vendor or model, and matches none of these names."""
    globs = [glob for text in rule.of for glob in text.split("|")]
    if not globs or any(_DIGITS.search(glob) for glob in globs):
        return False
    return not any(fnmatchcase(name, glob) for name in names for glob in globs)


class _UnmetAdvice(CheckEvidence, frozen=True):
    vendor: str
    rule: str
    setting: str
    current: table.Value
    advised: table.Value
    planned: table.Value | None
    against: str | None
    limit: str | None
    note: str | None
    open: str | None


def find_advice(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find unmet vendor advice: informational, or advice if the profile contradicts it."""
    for advice in inputs.advice:
        if advice.is_followed:
            continue
        is_conflict = advice.stance is Stance.CONFLICT
        evidence = _UnmetAdvice(
            vendor=advice.vendor,
            rule=advice.rule,
            setting=advice.setting,
            current=advice.current,
            # None means to keep the current value.
            advised=advice.current if advice.advised is None else advice.advised,
            planned=advice.planned if is_conflict else None,
            against=advice.against,
            limit=None if advice.limit is None else describe_limit(advice.limit),
            note=advice.note,
            open=advice.setting if advice.stance is Stance.OPEN else None,
        )
        severity = Severity.ADVICE if is_conflict else Severity.INFO
        finding = check.report(severity, advice.target, evidence)
        yield replace(finding, adapter=advice.adapter, source=advice.source)


class _UnsetAtBoot(CheckEvidence, frozen=True):
    settings: tuple[str, ...]
    reason: str | None  # None if udev could not start the program

    def describe(self) -> str:
        if self.reason is None:
            return self._fill_text("unstarted")
        cause = load_texts("messages.toml")["unset_setting"].get(self.reason, self.reason)
        return self._fill_text("description", cause=cause)

    def advise(self, target: str) -> str:
        return self._fill_text("reinstall" if self.reason is None else "advice")


def find_unset_at_boot(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find settings that hbatune's udev rules could not set, and that nothing has set since."""
    drift: dict[str, list[str]] = {}
    for row in inputs.rows:
        if row.state is State.DRIFT:
            drift.setdefault(row.target, []).append(row.setting)
    endpoints = {endpoint.target: endpoint for endpoint in inputs.endpoints}
    unset_names: dict[tuple[str, str | None], list[str]] = {}
    for unset in inputs.health.unset:
        drifting = drift.get(unset.target, [])
        if unset.setting is None:
            unset_names[unset.target, None] = drifting
        elif unset.setting in drifting:
            unset_names.setdefault((unset.target, unset.reason), []).append(unset.setting)
    for (target, reason), names in unset_names.items():
        if names and target in endpoints:
            evidence = _UnsetAtBoot(tuple(names), reason)
            yield check.report(Severity.WARNING, endpoints[target], evidence)


class _IneffectiveRule(CheckEvidence, frozen=True):
    setting: str
    value: str
    file: str
    line: int
    disks: tuple[str, ...]

    def advise(self, target: str) -> str:
        return self._fill_text("advice", nodes=" ".join(f"/dev/{disk}" for disk in self.disks))


def find_ineffective_rules(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find disks without the scheduler or nr_requests of another udev rule.

    Settings that the plan sets are skipped: hbatune may have changed them.
    """
    planned = {(row.target, row.setting) for row in inputs.rows}
    disks: dict[tuple[str, str, str, int], list[str]] = {}
    for endpoint in inputs.endpoints:
        for name in (table.SCHEDULER, table.NR_REQUESTS):
            if (endpoint.target, name) in planned:
                continue
            setting = table.SETTINGS[name]
            rule = _find_last_rule(inputs.health.udev_rules, endpoint, setting.path)
            if rule is None or rule.value is None:
                continue
            current = setting.read(endpoint.attributes)
            wanted = setting.read({setting.path: Attribute(rule.value, True)})
            is_known = not isinstance(current, Missing) and not isinstance(wanted, Missing)
            if is_known and current != wanted:
                key = (name, rule.value, rule.file, rule.line)
                disks.setdefault(key, []).append(endpoint.target)
    for key, targets in disks.items():
        yield check.report_machine(Severity.INFO, _IneffectiveRule(*key, tuple(targets)))


def _find_last_rule(
    rules: tuple[health.UdevRule, ...], endpoint: Endpoint, attribute: str
) -> health.UdevRule | None:
    """Return the last rule for the attribute of this disk, or None if that is unknown."""
    for rule in reversed(rules):
        if rule.attribute != attribute:
            continue
        if rule.disks is None:
            return None
        if rule.disks.include(endpoint):
            return rule
    return None
