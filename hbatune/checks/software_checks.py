"""Checks of software: other tools, firmware and driver versions, and vendors' advice.

Checks of software: other tools that set or measure, firmware and driver versions.

Checks against what vendors ask for, where the site wants to see it.
"""

import re
from collections.abc import Collection, Iterator
from fnmatch import fnmatchcase

from msgspec.structs import replace

from hbatune.act import paths
from hbatune.checks.finding import MACHINE, Check, CheckInput, Finding, Severity
from hbatune.facts.health import UdevRule
from hbatune.facts.model import Adapter, Missing, Reason
from hbatune.plan.advice import Stance
from hbatune.plan.rows import State
from hbatune.policy.config import Approved
from hbatune.settings.table import SETTINGS

_AFFINITY = "irq_affinity"
_PLACED = (State.OK, State.DRIFT)
_DIGITS = re.compile(r"[0-9a-f]{5}")  # of a WWN or a map's name, which no maker's name has
_READ_BY_IOTUNE = frozenset({"nr_requests", "scheduler", "nomerges"})
_NAMES = {setting.path.rpartition("/")[2]: name for name, setting in SETTINGS.items()}
_NAMES["smp_affinity"] = _AFFINITY  # the same as smp_affinity_list, in another form


def find_tuned(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find a running tuned: advice where it sets what the plan does, or a vendor's advice."""
    if seen.health.daemons.get("tuned") is not True:
        return
    found = seen.health.tuned
    if isinstance(found, Missing):
        yield check.found(Severity.INFO, MACHINE, unread=found.text or str(found.reason))
        return
    planned = {row.setting for row in seen.rows if row.state in _PLACED}
    planned |= {each.setting for each in seen.advice}
    both = {
        setting: write.file
        for write in found.writes
        if (setting := _setting_of(write.attribute)) in planned
    }
    yield check.found(
        Severity.ADVICE if both else Severity.INFO,
        MACHINE,
        profile=found.names,
        values=tuple(
            f"{setting} {write.value}"
            for write in found.writes
            if (setting := _setting_of(write.attribute)) is not None
        ),
        settings=tuple(sorted(both)),
        files=tuple(sorted(set(both.values()))),
    )


def find_irqbalance(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find a running irqbalance, which moves all interrupts that can be moved.

    It is advice where the profile places interrupts and irqbalance does not run hbatune's policy
    script, which tells it to leave those alone.
    """
    if seen.health.daemons.get("irqbalance") is not True:
        return
    placed = sum(row.setting == _AFFINITY and row.state in _PLACED for row in seen.rows)
    asks = str(paths.IRQ_POLICY) in seen.health.irq_policies
    at_risk = placed and not asks
    yield check.found(
        Severity.ADVICE if at_risk else Severity.INFO,
        MACHINE,
        placed=placed,
        asks=seen.health.irq_policies,
        policy=str(paths.IRQ_POLICY),
        start=str(paths.IRQ_POLICY) if at_risk else None,
    )


def find_udev_rules(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find udev rules of others for settings of hbatune: a conflict if the profile sets them.

    Those for makers of which nothing is here are no news: nvme-cli alone brings some.
    """
    wanted = {rule.setting for rule in seen.profile.rules} if seen.profile else set()
    names = {
        name for endpoint in seen.machine.endpoints for name in (endpoint.vendor, endpoint.model)
    }
    names |= {adapter.product for adapter in seen.machine.adapters if adapter.product}
    names |= {name.replace(" ", "_") for name in names}  # as udev has them (ID_MODEL)
    for rule in seen.health.udev_rules:
        setting = _setting_of(rule.attribute)
        if setting is not None and not _is_elsewhere(rule, names):
            yield check.found(
                Severity.ADVICE if setting in wanted else Severity.INFO,
                MACHINE,
                setting=setting,
                value=rule.value,
                file=rule.file,
                line=rule.line,
                of=rule.of,
            )


def find_missing_fio(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find that fio is missing, so that probes cannot run."""
    yield from _tool(check, seen, "fio")


def find_missing_bpftrace(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find that bpftrace is missing, so that live latencies cannot be measured."""
    yield from _tool(check, seen, "bpftrace")


def find_iotune(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find iotune, where the plan sets what it takes its depth from, or warns of."""
    if seen.health.tools.get("iotune") is True:
        moved = {row.setting for row in seen.rows if row.state in _PLACED} & _READ_BY_IOTUNE
        if moved:
            yield check.found(Severity.INFO, MACHINE, settings=tuple(sorted(moved)))


def find_hidden_processes(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find daemons that may run: processes are hidden, or a process of that name is unproven."""
    missing = {n: on for n, on in seen.health.daemons.items() if isinstance(on, Missing)}
    unproven = {n: on.text for n, on in missing.items() if on.reason is Reason.UNPARSABLE}
    if hidden := tuple(name for name in missing if name not in unproven):
        yield check.found(Severity.ADVICE, MACHINE, daemons=hidden)
    for name, process in unproven.items():
        yield check.found(
            Severity.ADVICE, MACHINE, daemons=(name,), process=process, unit=f"{name}.service"
        )


def find_unapproved_firmware(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find firmware that is not on the site's list, or cannot be read although it is listed."""
    for adapter, approved in _listed(seen):
        allowed = tuple(glob for each in approved for glob in each.firmware)
        yield from _judged(check, adapter, adapter.firmware, allowed)


def find_unapproved_drivers(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find drivers that are not on the site's list, or of which that cannot be told.

    A driver that has no version is its kernel's.
    """
    for adapter, approved in _listed(seen):
        allowed = tuple(glob for each in approved for glob in each.driver)
        version = adapter.driver_version
        if isinstance(version, Missing) and version.reason is Reason.ABSENT:
            version = seen.machine.kernel
        yield from _judged(check, adapter, version, allowed)


def _setting_of(attribute: str) -> str | None:
    """Return the setting that an attribute of the kernel belongs to, None if there is none."""
    return _NAMES.get(attribute.rpartition("/")[2])


def _is_elsewhere(rule: UdevRule, names: Collection[str]) -> bool:
    """Whether a rule asks for makers or models alone, and none of them has one of these names."""
    globs = [glob for text in rule.of for glob in text.split("|")]
    if not globs or any(_DIGITS.search(glob) for glob in globs):
        return False
    return not any(fnmatchcase(name, glob) for name in names for glob in globs)


def _tool(check: Check, seen: CheckInput, name: str) -> Iterator[Finding]:
    if seen.health.tools.get(name) is False:
        yield check.found(Severity.INFO, MACHINE)


def _listed(seen: CheckInput) -> Iterator[tuple[Adapter, tuple[Approved, ...]]]:
    for adapter in seen.adapters:
        yield adapter, tuple(each for each in seen.site.approved if _for(each, adapter))


def _for(approved: Approved, adapter: Adapter) -> bool:
    product = adapter.product or ""
    return approved.family == adapter.family and fnmatchcase(product, approved.product)


def _judged(
    check: Check, adapter: Adapter, version: str | Missing, allowed: tuple[str, ...]
) -> Iterator[Finding]:
    if not allowed:
        return
    if isinstance(version, Missing):
        # Not known is not the same as not approved, and no clean bill either.
        unread = version.text or str(version.reason)
        yield check.found(Severity.ADVICE, adapter, version=None, approved=allowed, unread=unread)
    elif not any(fnmatchcase(version, glob) for glob in allowed):
        yield check.found(Severity.WARNING, adapter, version=version, approved=allowed)


def find_advice(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find advice that is not met: worth knowing, and advice where the profile contradicts it."""
    for each in seen.advice:
        if each.stance is Stance.AGREES:
            continue
        conflict = each.stance is Stance.CONFLICT
        found = check.found(
            Severity.ADVICE if conflict else Severity.INFO,
            each.target,
            vendor=each.vendor,
            rule=each.rule,
            setting=each.setting,
            current=each.current,
            # None is to leave it as it is.
            advised=each.current if each.advised is None else each.advised,
            planned=each.planned if conflict else None,
            against=each.against,
            limit=each.limit,
            note=each.note,
            open=each.setting if each.stance is Stance.OPEN else None,
        )
        yield replace(found, adapter=each.adapter, source=each.source)
