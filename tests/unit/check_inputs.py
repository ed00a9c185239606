"""What checks see, for tests: a machine that is well unless told, and the findings of one check."""

from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from hbatune.checks.finding import CheckInput, Finding, Severity
from hbatune.checks.registry import run_checks
from hbatune.facts.health import AdapterHealth, DiskHealth, Errors, Health, Port, Root
from hbatune.facts.model import Machine, Missing, Processors, Reason, Role, Vector
from hbatune.plan.make import make_plan
from hbatune.policy.config import Site
from hbatune.policy.profile import Profile
from tests.unit.machines import adapter, machine, vector

NO_ERRORS = Errors(0, 0, 0)


def port(**overrides: Any) -> Port:
    """Return a Gen3 x8 port without errors."""
    return msgspec.structs.replace(Port("0000:00:01.0", 8.0, 8, NO_ERRORS), **overrides)


def adapter_health(**overrides: Any) -> AdapterHealth:
    """Return an adapter that is well, on a slot of its own speed."""
    well = AdapterHealth(
        errors=NO_ERRORS,
        port=port(),
        root=Root("0000:00:01.0", NO_ERRORS),
        vectors=9,
        options={},
        credits={},
    )
    return msgspec.structs.replace(well, **overrides)


def disk_health(**overrides: Any) -> DiskHealth:
    """Return a disk that is well."""
    well = DiskHealth("write through", 1_000_000, 0, 0)
    return msgspec.structs.replace(well, **overrides)


def health(machine: Machine, **overrides: Any) -> Health:
    """Return the health of a machine that is well, with nothing else at work on it."""
    well = Health(
        adapters={adapter.target: adapter_health() for adapter in machine.adapters},
        disks={endpoint.target: disk_health() for endpoint in machine.endpoints},
        mounts=(),
        daemons={"irqbalance": False, "tuned": False},
        tools={"fio": True},
        udev_rules=(),
        log=True,
    )
    return msgspec.structs.replace(well, **overrides)


def seen(
    machine: Machine,
    fares: Health | None = None,
    *,
    site: Site | None = None,
    profile: Profile | None = None,
) -> CheckInput:
    """Return the input of the checks for this machine."""
    return CheckInput(
        machine=machine,
        health=fares or health(machine),
        adapters=machine.adapters,
        endpoints=machine.endpoints,
        site=site or Site(),
        profile=profile,
        rows=make_plan(machine, profile).rows if profile else (),
    )


def found(check_input: CheckInput, id: str) -> list[Finding]:
    """Return the findings of the check with this id."""
    return [finding for finding in run_checks(check_input) if finding.id == id]


class Text(NamedTuple):
    """The two sentences of a finding."""

    evidence: str
    advice: str


def format_finding(finding: Finding) -> Text:
    """Return the two sentences of a finding."""
    return Text(finding.evidence.describe(), finding.evidence.advise(finding.target))


def facts(finding: Finding) -> dict[str, Any]:
    """Return the evidence of a finding, as JSON has it."""
    return dict(msgspec.to_builtins(finding.evidence))


ADAPTER = "0000:01:00.0"


DENIED = Missing(Reason.UNREADABLE, 13)


INFO, ADVICE = Severity.INFO, Severity.ADVICE


WARNING, CRITICAL = Severity.WARNING, Severity.CRITICAL


def adapters(machine: Machine, **overrides: Any) -> dict[str, Any]:
    return {"adapters": {hba.target: adapter_health(**overrides) for hba in machine.adapters}}


def disks(machine: Machine, **overrides: Any) -> dict[str, Any]:
    return {"disks": {endpoint.target: disk_health(**overrides) for endpoint in machine.endpoints}}


def only(findings: list[Finding]) -> Finding:
    [finding] = findings
    return finding


def served(*cpus: str, role: Role = Role.DATA, managed: bool = False) -> tuple[Vector, ...]:
    """Vectors of the adapter, each served by one of these CPUs."""
    return tuple(
        vector(irq=30 + number, role=role, managed=managed, effective=cpu)
        for number, cpu in enumerate(cpus)
    )


def placed(*vectors: Vector, near: tuple[int, ...] = (0, 1, 2, 3), queues: int = 4) -> Machine:
    return replace(
        machine(adapters=(adapter(hw_queues=queues),)),
        vectors=vectors,
        local_cpus={ADAPTER: near},
        processors=Processors(online=tuple(range(8))),
    )
