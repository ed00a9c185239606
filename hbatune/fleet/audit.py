"""The audit of a fleet: what its hosts have, what they drift in, and what was found. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

from msgspec import Struct

from hbatune.checks.model import Finding, Severity
from hbatune.facts.names import natural_key
from hbatune.fleet.alike import AlikeHosts, LoneHost, OddFact, find_lone, find_odd, group_alike
from hbatune.fleet.host import HostAudit, HostSummary
from hbatune.fleet.reading import Unusable
from hbatune.settings.table import Value


class AuditedHost(HostSummary, frozen=True, kw_only=True):
    """A host of the fleet; ``name`` tells it from all others.

    ``drift`` counts its settings that drift, ``odd`` the facts in which it differs from alike
    hosts, ``findings`` its findings by severity. ``group`` is the number of its group.
    """

    name: str
    drift: int
    odd: int
    findings: dict[Severity, int]
    group: int


class FleetDrift(Struct, frozen=True):
    """Drift that hosts have in common; ``targets`` counts those of all hosts together."""

    profile: str
    setting: str
    current: Value | None
    value: Value | None
    rule: str
    source: str
    targets: int
    hosts: tuple[str, ...]


class FleetFinding(Struct, frozen=True):
    """Findings of one check and severity; ``example`` is that of the first of the hosts."""

    id: str
    severity: Severity
    source: str
    targets: int
    hosts: tuple[str, ...]
    example: Finding


class Stocked(StrEnum):
    """What the inventory counts."""

    ADAPTER = "adapter"
    FIRMWARE = "firmware"
    DRIVER = "driver"
    LINK = "link"
    PROFILE = "profile"
    KERNEL = "kernel"


class Stock(Struct, frozen=True):
    """A line of the inventory: so many ``of`` these (adapters, or hosts) have this value.

    ``of`` is None where hosts are counted, ``value`` None where it is not known or there is none.
    """

    what: Stocked
    of: str | None
    value: str | None
    count: int
    hosts: tuple[str, ...]


class Audit(Struct, frozen=True):
    """Everything an audit says, the gravest and most common first."""

    hosts: tuple[AuditedHost, ...]
    groups: tuple[AlikeHosts, ...]
    odd: tuple[OddFact, ...]
    lone: tuple[LoneHost, ...]
    drift: tuple[FleetDrift, ...]
    findings: tuple[FleetFinding, ...]
    inventory: tuple[Stock, ...]
    unusable: tuple[Unusable, ...]
    not_understood: tuple[str, ...] = ()

    @property
    def drifting(self) -> tuple[AuditedHost, ...]:
        """The hosts that drift."""
        return tuple(each for each in self.hosts if each.drift)

    @property
    def odd_hosts(self) -> tuple[str, ...]:
        """The names of the odd hosts, each once, in the order of what they differ in."""
        return tuple(dict.fromkeys(each.host for each in self.odd))


def audit(results: Iterable[HostAudit | Unusable]) -> Audit:
    """Return the audit of all hosts that were read, with the files that were of no use."""
    found = list(results)
    read = [each for each in found if isinstance(each, HostAudit)]
    unusable = [each for each in found if isinstance(each, Unusable)]
    hosts = _named(read)
    groups = group_alike(hosts)
    odd = find_odd(groups, hosts)
    return Audit(
        hosts=tuple(_hosts(hosts, groups, odd)),
        groups=groups,
        odd=odd,
        lone=find_lone(groups, hosts),
        drift=tuple(_drift(hosts)),
        findings=tuple(_findings(hosts)),
        inventory=tuple(_inventory(hosts)),
        unusable=tuple(sorted(unusable, key=lambda each: natural_key(each.file))),
        not_understood=tuple(sorted({name for _, host in hosts for name in host.not_understood})),
    )


def _named(hosts: Iterable[HostAudit]) -> list[tuple[str, HostAudit]]:
    """Return the hosts by name: the host's own where it is the only one, else the file's.

    An anonymous snapshot's name says nothing, so it goes by its file as well.
    """
    every = list(hosts)
    counted = Counter(each.hostname for each in every)
    files = {each.file for each in every}

    def name(host: HostAudit) -> str:
        own = host.hostname
        return host.file if host.anonymous or counted[own] > 1 or own in files else own

    return sorted(((name(each), each) for each in every), key=lambda each: natural_key(each[0]))


def _hosts(
    hosts: Sequence[tuple[str, HostAudit]],
    groups: Iterable[AlikeHosts],
    odd: Iterable[OddFact],
) -> Iterator[AuditedHost]:
    group = {name: each.number for each in groups for name in each.hosts}
    odds = Counter(each.host for each in odd)
    for name, host in hosts:
        findings: Counter[Severity] = Counter()
        for each in host.findings:
            findings[each.severity] += each.count
        yield AuditedHost(
            **{field: getattr(host, field) for field in HostSummary.__struct_fields__},
            name=name,
            drift=sum(each.count for each in host.drift),
            odd=odds[name],
            findings=dict(findings),
            group=group[name],
        )


def _drift(hosts: Iterable[tuple[str, HostAudit]]) -> list[FleetDrift]:
    groups: dict[tuple[str, str, Value | None, Value | None, str, str], Counter[str]] = defaultdict(
        Counter
    )
    for name, host in hosts:
        for each in host.drift:
            key = (host.profile or "", each.setting, each.current, each.value)
            groups[*key, each.rule, each.source][name] += each.count
    made = [FleetDrift(*key, sum(on.values()), tuple(on)) for key, on in groups.items()]
    return sorted(made, key=lambda each: (-len(each.hosts), -each.targets))


def _findings(hosts: Iterable[tuple[str, HostAudit]]) -> list[FleetFinding]:
    counted: dict[tuple[str, Severity], Counter[str]] = defaultdict(Counter)
    examples: dict[tuple[str, Severity], Finding] = {}
    for name, host in hosts:
        for each in host.findings:
            key = (each.id, each.severity)
            counted[key][name] += each.count
            examples.setdefault(key, each.example)
    made = [
        FleetFinding(*key, examples[key].source, sum(on.values()), tuple(on), examples[key])
        for key, on in counted.items()
    ]
    grave = list(reversed(Severity))
    return sorted(made, key=lambda each: (grave.index(each.severity), -len(each.hosts)))


def _inventory(hosts: Iterable[tuple[str, HostAudit]]) -> list[Stock]:
    counted: dict[tuple[Stocked, str | None, str | None], Counter[str]] = defaultdict(Counter)
    for name, host in hosts:
        counted[Stocked.PROFILE, None, host.profile][name] += 1
        counted[Stocked.KERNEL, None, host.kernel][name] += 1
        for each in host.adapters:
            counted[Stocked.ADAPTER, each.family, each.name][name] += 1
            counted[Stocked.FIRMWARE, each.name, each.firmware][name] += 1
            counted[Stocked.DRIVER, each.name, each.driver][name] += 1
            if each.link is not None:
                counted[Stocked.LINK, each.name, each.link][name] += 1
    order = list(Stocked)
    made = [Stock(*key, sum(on.values()), tuple(on)) for key, on in counted.items()]
    return sorted(
        made,
        key=lambda each: (order.index(each.what), each.of or "", -each.count, each.value or ""),
    )
