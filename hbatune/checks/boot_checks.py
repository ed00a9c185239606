"""Checks of udev rules that did not take effect, hbatune's own and others.

udev writes an attribute once. On recent kernels a write of the scheduler or of nr_requests fails
while another disk of the adapter gets one (block/elevator.c: elevator_change), and only udev's log
shows it.
"""

from collections.abc import Iterator
from fnmatch import fnmatchcase

from hbatune.checks.finding import (
    MACHINE_TARGET,
    Check,
    CheckEvidence,
    CheckInput,
    Finding,
    Severity,
)
from hbatune.facts.health import UdevRule
from hbatune.facts.model import Endpoint, Missing
from hbatune.plan.rows import State
from hbatune.settings.table import NR_REQUESTS, SCHEDULER, SETTINGS, Value

_REASONS = {
    "busy": "the kernel refused it for 5 s, because other disks of the adapter were being set",
    "commands": "the disk was not ready, or a command did not end within 1 s",
    "ignored": "the kernel kept another value",
    "refused": "the kernel refused the value",
}


class _UnsetAtBoot(CheckEvidence, frozen=True):
    ADVICE = "set it with `hbatune apply`, or start the daemon: `systemctl start hbatune`"
    settings: tuple[str, ...]
    reason: str

    def describe(self) -> str:
        reason = _REASONS.get(self.reason, self.reason)
        return (
            f"hbatune's udev rules could not set {', '.join(self.settings)} as the disk appeared: "
            f"{reason}"
        )


class _UnstartedProgram(CheckEvidence, frozen=True):
    ADVICE = "place the program again with `hbatune install`, then set it with `hbatune apply`"
    settings: tuple[str, ...]

    def describe(self) -> str:
        return (
            f"udev could not start the program that sets {', '.join(self.settings)} as the disk "
            "appears"
        )


def find_unset_at_boot(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find settings that hbatune's udev rules could not set, and that nothing has set since."""
    drift: dict[str, list[str]] = {}
    for row in inputs.rows:
        if row.state is State.DRIFT:
            drift.setdefault(row.target, []).append(row.setting)
    for endpoint in inputs.endpoints:
        settings_by_reason: dict[str, list[str]] = {}
        for unset in inputs.health.unset:
            if unset.target != endpoint.target:
                continue
            names = drift.get(unset.target, [])
            if unset.setting is None and names:
                yield check.report(Severity.WARNING, endpoint, _UnstartedProgram(tuple(names)))
            elif unset.setting in names:
                settings_by_reason.setdefault(unset.reason, []).append(unset.setting)
        for reason, names in settings_by_reason.items():
            yield check.report(Severity.WARNING, endpoint, _UnsetAtBoot(tuple(names), reason))


class _IneffectiveRule(CheckEvidence, frozen=True):
    setting: str
    value: str
    file: str
    line: int
    disks: tuple[str, ...]

    def describe(self) -> str:
        return (
            f"{self.file}, line {self.line}, sets {self.setting} to {self.value}, but "
            f"{', '.join(self.disks)} has another value"
        )

    def advise(self, target: str) -> str:
        names = " ".join(f"/dev/{disk}" for disk in self.disks)
        return (
            "if nobody has changed it since, the kernel refused udev's write; repeat it with "
            f"`udevadm trigger --action=add {names}`"
        )


def find_ineffective_rules(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find disks without the scheduler or nr_requests of another udev rule.

    Settings that the plan sets are skipped: hbatune may have changed them.
    """
    planned = {(row.target, row.setting) for row in inputs.rows}
    disks: dict[tuple[str, str, str, int], list[str]] = {}
    for endpoint in inputs.endpoints:
        for name in (SCHEDULER, NR_REQUESTS):
            if (endpoint.target, name) in planned:
                continue
            rule = _find_last_rule(inputs.health.udev_rules, endpoint, SETTINGS[name].path)
            wanted = _parse_value(name, rule.value) if rule and rule.value else None
            current = SETTINGS[name].read(endpoint.attributes)
            if not rule or wanted is None or isinstance(current, Missing) or current == wanted:
                continue
            key = (name, rule.value or "", rule.file, rule.line)
            disks.setdefault(key, []).append(endpoint.target)
    for key, targets in disks.items():
        evidence = _IneffectiveRule(*key, tuple(targets))
        yield check.report(Severity.INFO, MACHINE_TARGET, evidence)


def _find_last_rule(
    rules: tuple[UdevRule, ...], endpoint: Endpoint, attribute: str
) -> UdevRule | None:
    """Return the last rule for the attribute of this disk, or None if that is unknown."""
    for rule in reversed(rules):
        if rule.attribute != attribute:
            continue
        if rule.disks is None:
            return None
        if rule.disks.rotational not in (None, endpoint.rotational):
            continue
        for kernel in rule.disks.kernels:
            if fnmatchcase(endpoint.target, kernel):
                return rule
    return None


def _parse_value(name: str, text: str) -> Value | None:
    try:
        return SETTINGS[name].format.parse(text)
    except ValueError:
        return None
