"""The audit of a fleet: groups of alike hosts, those that differ, findings, and metrics.

Groups of alike hosts, and the odd ones out among them. Pure.

Hosts are alike when they have the same kinds of adapters, by driver and PCI ids. All else is
compared, how many there are of each kind among it. Where nearly all hosts of a group agree, the few
that differ are odd; where a group is divided, as in the middle of a rollout, nobody is.

The audit of a fleet: what its hosts have, what they drift in, and what was found. Pure.

Renders an audit as Prometheus metrics, for node_exporter's textfile collector. Pure.

Beside the daemon's metrics (``watch.metrics``), which are of one host and of this moment, these say
what each host is made of, so that Prometheus can count and compare over all of them.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from msgspec import Struct

from hbatune.checks.finding import Finding, Severity
from hbatune.facts.names import natural_key
from hbatune.fleet.compared_facts import ORDER, FactKind, HostFact, Scalar, Valued
from hbatune.fleet.hosts import HostAudit, HostSummary, UnusableSnapshot
from hbatune.settings.table import Value
from hbatune.watch.metrics import require

if TYPE_CHECKING:
    from prometheus_client.core import GaugeMetricFamily


AGREE = 2 / 3
"""The share of hosts that have the usual values at least: of two nobody knows which one is odd."""

COMPARABLE = 3
"""Alike hosts from which on one of them can be odd."""

FEW = 0.1
"""The share of hosts that may have other values and be odd; one host always may."""


class PeerGroup(Struct, frozen=True):
    """A group of alike hosts; ``adapters`` are the names of their kinds, ``hosts`` the labels."""

    number: int
    adapters: tuple[str, ...]
    hosts: tuple[str, ...]


class Outlier(Struct, frozen=True):
    """A fact in which a host differs from those like it.

    ``found`` are its own values, ``usual`` those of ``agreeing`` of the ``compared`` hosts.
    """

    host: str
    group: int
    kind: FactKind
    subject: str
    what: str
    found: tuple[Valued, ...]
    usual: tuple[Scalar, ...]
    agreeing: int
    compared: int


class LoneHost(Struct, frozen=True):
    """A host with too few alike ones to be compared with, and the larger group nearest to it.

    ``group`` is that group's number, None where none has an adapter in common. ``lacks`` are the
    adapters that the group has and the host has not, ``besides`` those that only the host has.
    """

    host: str
    adapters: tuple[str, ...]
    group: int | None
    lacks: tuple[str, ...]
    besides: tuple[str, ...]


def group_peers(hosts: Sequence[tuple[str, HostAudit]]) -> tuple[PeerGroup, ...]:
    """Return the groups of alike hosts, the largest first; each host comes with its label."""
    found: dict[tuple[str, ...], list[str]] = defaultdict(list)
    names: dict[tuple[str, ...], tuple[str, ...]] = {}
    for label, host in hosts:
        found[host.alike].append(label)
        named = {adapter.kind: adapter.name for adapter in host.adapters}
        names.setdefault(host.alike, tuple(dict.fromkeys(named[kind] for kind in host.alike)))
    ordered = sorted(found, key=lambda kinds: (-len(found[kinds]), kinds))
    return tuple(
        PeerGroup(number, names[kinds], tuple(found[kinds]))
        for number, kinds in enumerate(ordered, 1)
    )


def find_outliers(
    groups: Iterable[PeerGroup], hosts: Sequence[tuple[str, HostAudit]]
) -> tuple[Outlier, ...]:
    """Return what each odd host differs in, what matters most first, and hosts in their order."""
    by_label = dict(hosts)
    odd = [
        each
        for group in groups
        for each in _odd_in(group, [(label, by_label[label].facts) for label in group.hosts])
    ]
    place = {label: number for number, (label, _) in enumerate(hosts)}
    return tuple(sorted(odd, key=lambda each: (ORDER[each.kind], place[each.host])))


def find_lone(
    groups: Sequence[PeerGroup], hosts: Sequence[tuple[str, HostAudit]]
) -> tuple[LoneHost, ...]:
    """Return the hosts in groups that are too small to compare: one that has lost an adapter?"""
    by_label = dict(hosts)
    large = [each for each in groups if len(each.hosts) >= COMPARABLE]
    kinds = {each.number: set(by_label[each.hosts[0]].alike) for each in large}
    return tuple(
        _lone(by_label[label], label, group, large, kinds)
        for group in groups
        if len(group.hosts) < COMPARABLE
        for label in group.hosts
    )


def _lone(
    host: HostAudit,
    label: str,
    own: PeerGroup,
    large: Iterable[PeerGroup],
    kinds: Mapping[int, set[str]],
) -> LoneHost:
    here = set(host.alike)
    near = [each for each in large if kinds[each.number] & here]
    if not near:
        return LoneHost(label, own.adapters, None, (), own.adapters)
    nearest = min(near, key=lambda each: len(kinds[each.number] ^ here))
    return LoneHost(
        host=label,
        adapters=own.adapters,
        group=nearest.number,
        lacks=tuple(name for name in nearest.adapters if name not in own.adapters),
        besides=tuple(name for name in own.adapters if name not in nearest.adapters),
    )


def _odd_in(
    group: PeerGroup, hosts: Iterable[tuple[str, tuple[HostFact, ...]]]
) -> Iterator[Outlier]:
    facts: dict[tuple[FactKind, str, str], list[tuple[str, HostFact]]] = defaultdict(list)
    for label, found in hosts:
        for fact in found:
            facts[fact.key].append((label, fact))
    for key, having in facts.items():
        counted = Counter(fact.values for _, fact in having)
        usual, agreeing = counted.most_common(1)[0]
        if agreeing < AGREE * len(having):
            continue
        few = max(1, int(FEW * len(having)))
        for label, fact in having:
            if fact.values != usual and counted[fact.values] <= few:
                yield Outlier(
                    *(label, group.number, *key, fact.found),
                    *(usual, agreeing, len(having)),
                )


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
    groups: tuple[PeerGroup, ...]
    odd: tuple[Outlier, ...]
    lone: tuple[LoneHost, ...]
    drift: tuple[FleetDrift, ...]
    findings: tuple[FleetFinding, ...]
    inventory: tuple[Stock, ...]
    unusable: tuple[UnusableSnapshot, ...]
    not_understood: tuple[str, ...] = ()

    @property
    def drifting(self) -> tuple[AuditedHost, ...]:
        """The hosts that drift."""
        return tuple(host for host in self.hosts if host.drift)

    @property
    def odd_hosts(self) -> tuple[str, ...]:
        """The names of the odd hosts, each once, in the order of what they differ in."""
        return tuple(dict.fromkeys(each.host for each in self.odd))


def audit(results: Iterable[HostAudit | UnusableSnapshot]) -> Audit:
    """Return the audit of all hosts that were read, with the files that were of no use."""
    found = list(results)
    read = [each for each in found if isinstance(each, HostAudit)]
    unusable = [each for each in found if isinstance(each, UnusableSnapshot)]
    hosts = _named(read)
    groups = group_peers(hosts)
    odd = find_outliers(groups, hosts)
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
    groups: Iterable[PeerGroup],
    odd: Iterable[Outlier],
) -> Iterator[AuditedHost]:
    group = {name: each.number for each in groups for name in each.hosts}
    odds = Counter(each.host for each in odd)
    for name, host in hosts:
        findings: Counter[Severity] = Counter()
        for finding in host.findings:
            findings[finding.severity] += finding.count
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
        for finding in host.findings:
            key = (finding.id, finding.severity)
            counted[key][name] += finding.count
            examples.setdefault(key, finding.example)
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
        for adapter in host.adapters:
            counted[Stocked.ADAPTER, adapter.family, adapter.name][name] += 1
            counted[Stocked.FIRMWARE, adapter.name, adapter.firmware][name] += 1
            counted[Stocked.DRIVER, adapter.name, adapter.driver][name] += 1
            if adapter.link is not None:
                counted[Stocked.LINK, adapter.name, adapter.link][name] += 1
    order = list(Stocked)
    made = [Stock(*key, sum(on.values()), tuple(on)) for key, on in counted.items()]
    return sorted(
        made,
        key=lambda each: (order.index(each.what), each.of or "", -each.count, each.value or ""),
    )


_HOST = ("host", "profile", "kernel", "version", "group")
_ADAPTER = ("host", "adapter", "family", "product", "firmware", "driver", "link")


def exposition(audit: Audit, now: float) -> bytes:
    """Return an audit in Prometheus's text format; ``now`` is in seconds since the epoch.

    UsageError where the library for metrics is not installed.
    """
    require()
    from prometheus_client import CollectorRegistry, generate_latest

    class Collector:
        def collect(self) -> "Iterator[GaugeMetricFamily]":
            return _families(audit, now)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector())
    return bytes(generate_latest(registry))


def _families(audit: Audit, now: float) -> "Iterator[GaugeMetricFamily]":
    from prometheus_client.core import GaugeMetricFamily

    def gauge(name: str, says: str, *labels: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"hbatune_audit_{name}", says, labels=labels)

    info = gauge("host_info", "Profile, kernel, version and group of a host.", *_HOST)
    adapters = gauge("adapter_info", "Versions and link of an adapter.", *_ADAPTER)
    drift = gauge("drift_settings", "Settings that are not as the profile wants them.", "host")
    odd = gauge("odd_facts", "Facts in which a host differs from alike ones.", "host")
    findings = gauge("findings", "Findings of the checks.", "host", "severity")
    taken = gauge("snapshot_timestamp_seconds", "When the snapshot was taken.", "host")
    for host in audit.hosts:
        named = (host.name, host.profile or "", host.kernel, host.hbatune, str(host.group))
        info.add_metric(named, 1)
        drift.add_metric((host.name,), host.drift)
        odd.add_metric((host.name,), host.odd)
        taken.add_metric((host.name,), host.taken)
        for severity in Severity:
            findings.add_metric((host.name, str(severity)), host.findings.get(severity, 0))
        for adapter in host.adapters:
            known = (adapter.firmware or "", adapter.driver or "", adapter.link or "")
            adapters.add_metric(
                (host.name, adapter.target, adapter.family, adapter.name, *known), 1
            )
    yield from (info, adapters, drift, odd, findings, taken)
    unusable = gauge("unusable_files", "Files that could not be audited.")
    unusable.add_metric((), len(audit.unusable))
    yield unusable
    made = gauge("timestamp_seconds", "When the audit was made.")
    made.add_metric((), now)
    yield made
