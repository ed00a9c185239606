"""Who else sets the same things, and which tools are there."""

from collections.abc import Iterator

from hbatune.act import paths
from hbatune.checks.model import MACHINE, Check, Finding, Seen, Severity
from hbatune.facts.model import Missing
from hbatune.plan.rows import State
from hbatune.settings.table import SETTINGS

_AFFINITY = "irq_affinity"
_PLACED = (State.OK, State.DRIFT)
_NAMES = {setting.path.rpartition("/")[2]: name for name, setting in SETTINGS.items()}


def tuned(check: Check, seen: Seen) -> Iterator[Finding]:
    """Find tuned at work, which sets schedulers, read-ahead and more by its own profile."""
    if seen.health.daemons.get("tuned") is True:
        yield check.found(Severity.ADVICE, MACHINE)


def irqbalance(check: Check, seen: Seen) -> Iterator[Finding]:
    """Say that irqbalance is at work, which moves the interrupts that may be moved.

    It is worse where the profile places some and it does not ask which those are.
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
    )


def udev_rules(check: Check, seen: Seen) -> Iterator[Finding]:
    """Find udev rules that set what hbatune sets: a conflict where the profile sets it, too."""
    wanted = {rule.setting for rule in seen.profile.rules} if seen.profile else set()
    for rule in seen.health.udev_rules:
        setting = _NAMES.get(rule.attribute.rpartition("/")[2])
        if setting is not None:
            yield check.found(
                Severity.ADVICE if setting in wanted else Severity.INFO,
                MACHINE,
                setting=setting,
                value=rule.value,
                file=rule.file,
                line=rule.line,
            )


def fio(check: Check, seen: Seen) -> Iterator[Finding]:
    """Say that probes cannot run."""
    yield from _tool(check, seen, "fio")


def bpftrace(check: Check, seen: Seen) -> Iterator[Finding]:
    """Say that live latencies cannot be seen."""
    yield from _tool(check, seen, "bpftrace")


def _tool(check: Check, seen: Seen, name: str) -> Iterator[Finding]:
    if seen.health.tools.get(name) is False:
        yield check.found(Severity.INFO, MACHINE)


def hidden(check: Check, seen: Seen) -> Iterator[Finding]:
    """Say which daemons could not be looked for."""
    names = tuple(name for name, on in seen.health.daemons.items() if isinstance(on, Missing))
    if names:
        yield check.found(Severity.ADVICE, MACHINE, daemons=names)
