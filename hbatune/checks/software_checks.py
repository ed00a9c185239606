"""Checks of software: other tools, firmware and driver versions, and vendor advice.

Vendor advice is checked only if the configuration enables it.
"""

import re
from collections.abc import Collection, Iterator
from fnmatch import fnmatchcase

from msgspec.structs import replace

from hbatune.act import paths
from hbatune.checks.finding import MACHINE_TARGET, Check, CheckInput, Finding, Severity
from hbatune.facts.health import UdevRule
from hbatune.facts.model import Adapter, Missing, Reason
from hbatune.plan.advice import Stance
from hbatune.plan.rows import State
from hbatune.policy.config import ApprovedVersions
from hbatune.settings.table import SETTINGS
from hbatune.text.limit_text import describe_limit

_AFFINITY = "irq_affinity"
_PLACED = (State.OK, State.DRIFT)
_DIGITS = re.compile(r"[0-9a-f]{5}")  # part of a WWN or map name, but of no vendor name
_READ_BY_IOTUNE = frozenset({"nr_requests", "scheduler", "nomerges"})
_NAMES = {setting.path.rpartition("/")[2]: name for name, setting in SETTINGS.items()}
_NAMES["smp_affinity"] = _AFFINITY  # the same as smp_affinity_list, in another form


def find_tuned(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find a running tuned. It is advice if tuned sets a planned or vendor-advised setting."""
    if inputs.health.daemons.get("tuned") is not True:
        return
    tuned = inputs.health.tuned
    if isinstance(tuned, Missing):
        yield check.found(Severity.INFO, MACHINE_TARGET, unread=tuned.text or str(tuned.reason))
        return
    planned = {row.setting for row in inputs.rows if row.state in _PLACED}
    planned |= {advice.setting for advice in inputs.advice}
    conflicts = {
        setting: write.file
        for write in tuned.writes
        if (setting := _find_setting(write.attribute)) in planned
    }
    yield check.found(
        Severity.ADVICE if conflicts else Severity.INFO,
        MACHINE_TARGET,
        profile=tuned.names,
        values=tuple(
            f"{setting} {write.value}"
            for write in tuned.writes
            if (setting := _find_setting(write.attribute)) is not None
        ),
        settings=tuple(sorted(conflicts)),
        files=tuple(sorted(set(conflicts.values()))),
    )


def find_irqbalance(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find a running irqbalance, which moves all movable interrupts.

    It is advice if the profile places interrupts and irqbalance does not run hbatune's policy
    script, which excludes these interrupts.
    """
    if inputs.health.daemons.get("irqbalance") is not True:
        return
    placed = sum(row.setting == _AFFINITY and row.state in _PLACED for row in inputs.rows)
    runs_policy = str(paths.IRQ_POLICY) in inputs.health.irq_policies
    at_risk = placed and not runs_policy
    yield check.found(
        Severity.ADVICE if at_risk else Severity.INFO,
        MACHINE_TARGET,
        placed=placed,
        asks=inputs.health.irq_policies,
        policy=str(paths.IRQ_POLICY),
        start=str(paths.IRQ_POLICY) if at_risk else None,
    )


def find_udev_rules(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find other udev rules for hbatune's settings. They conflict if the profile sets them too.

    Rules for vendors without a device on this machine are skipped: nvme-cli ships some.
    """
    wanted = {rule.setting for rule in inputs.profile.rules} if inputs.profile else set()
    names = {
        name for endpoint in inputs.machine.endpoints for name in (endpoint.vendor, endpoint.model)
    }
    names |= {adapter.product for adapter in inputs.machine.adapters if adapter.product}
    names |= {name.replace(" ", "_") for name in names}  # as in udev (ID_MODEL)
    for rule in inputs.health.udev_rules:
        setting = _find_setting(rule.attribute)
        if setting is not None and not _is_elsewhere(rule, names):
            yield check.found(
                Severity.ADVICE if setting in wanted else Severity.INFO,
                MACHINE_TARGET,
                setting=setting,
                value=rule.value,
                file=rule.file,
                line=rule.line,
                of=rule.of,
            )


def find_missing_fio(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Report that fio is missing, which probes require."""
    yield from _check_tool(check, inputs, "fio")


def find_missing_bpftrace(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Report that bpftrace is missing, which live latency measurements require."""
    yield from _check_tool(check, inputs, "bpftrace")


def find_iotune(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find iotune if the plan sets a setting that it reads its depth from or warns about."""
    if inputs.health.tools.get("iotune") is True:
        moved = {row.setting for row in inputs.rows if row.state in _PLACED} & _READ_BY_IOTUNE
        if moved:
            yield check.found(Severity.INFO, MACHINE_TARGET, settings=tuple(sorted(moved)))


def find_hidden_processes(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find daemons that may run: processes are hidden, or a process only has that name."""
    missing = {
        daemon: state
        for daemon, state in inputs.health.daemons.items()
        if isinstance(state, Missing)
    }
    unproven = {
        daemon: state.text for daemon, state in missing.items() if state.reason is Reason.UNPARSABLE
    }
    if hidden := tuple(name for name in missing if name not in unproven):
        yield check.found(Severity.ADVICE, MACHINE_TARGET, daemons=hidden)
    for name, process in unproven.items():
        yield check.found(
            Severity.ADVICE,
            MACHINE_TARGET,
            daemons=(name,),
            process=process,
            unit=f"{name}.service",
        )


def find_unapproved_firmware(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find firmware that is not approved, or that is on the list but cannot be read."""
    for adapter, approved in _list_approved(inputs):
        allowed = tuple(glob for entry in approved for glob in entry.firmware)
        yield from _check_version(check, adapter, adapter.firmware, allowed)


def find_unapproved_drivers(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find drivers that are not approved, or whose version cannot be read.

    A driver without a version has the kernel's version.
    """
    for adapter, approved in _list_approved(inputs):
        allowed = tuple(glob for entry in approved for glob in entry.driver)
        version = adapter.driver_version
        if isinstance(version, Missing) and version.reason is Reason.ABSENT:
            version = inputs.machine.kernel
        yield from _check_version(check, adapter, version, allowed)


def _find_setting(attribute: str) -> str | None:
    """Return the setting of a kernel attribute, or None if it has no setting."""
    return _NAMES.get(attribute.rpartition("/")[2])


def _is_elsewhere(rule: UdevRule, names: Collection[str]) -> bool:
    """Return whether a rule matches only by vendor or model, and matches none of these names."""
    globs = [glob for text in rule.of for glob in text.split("|")]
    if not globs or any(_DIGITS.search(glob) for glob in globs):
        return False
    return not any(fnmatchcase(name, glob) for name in names for glob in globs)


def _check_tool(check: Check, inputs: CheckInput, name: str) -> Iterator[Finding]:
    if inputs.health.tools.get(name) is False:
        yield check.found(Severity.INFO, MACHINE_TARGET)


def _list_approved(inputs: CheckInput) -> Iterator[tuple[Adapter, tuple[ApprovedVersions, ...]]]:
    for adapter in inputs.adapters:
        yield adapter, tuple(entry for entry in inputs.site.approved if _applies_to(entry, adapter))


def _applies_to(approved: ApprovedVersions, adapter: Adapter) -> bool:
    product = adapter.product or ""
    return approved.family == adapter.family and fnmatchcase(product, approved.product)


def _check_version(
    check: Check, adapter: Adapter, version: str | Missing, allowed: tuple[str, ...]
) -> Iterator[Finding]:
    if not allowed:
        return
    if isinstance(version, Missing):
        # An unknown version is neither approved nor unapproved.
        unread = version.text or str(version.reason)
        yield check.found(Severity.ADVICE, adapter, version=None, approved=allowed, unread=unread)
    elif not any(fnmatchcase(version, glob) for glob in allowed):
        yield check.found(Severity.WARNING, adapter, version=version, approved=allowed)


def find_advice(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find unmet vendor advice: informational, or advice if the profile contradicts it."""
    for advice in inputs.advice:
        if advice.stance is Stance.AGREES:
            continue
        conflict = advice.stance is Stance.CONFLICT
        finding = check.found(
            Severity.ADVICE if conflict else Severity.INFO,
            advice.target,
            vendor=advice.vendor,
            rule=advice.rule,
            setting=advice.setting,
            current=advice.current,
            # None means to keep the current value.
            advised=advice.current if advice.advised is None else advice.advised,
            planned=advice.planned if conflict else None,
            against=advice.against,
            limit=None if advice.limit is None else describe_limit(advice.limit),
            note=advice.note,
            open=advice.setting if advice.stance is Stance.OPEN else None,
        )
        yield replace(finding, adapter=advice.adapter, source=advice.source)
