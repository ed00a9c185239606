"""The audit of a fleet: inventory, drift, findings and outliers among peers, and its metrics. Pure.

Peers are hosts with the same types of adapters, by driver and PCI ids. All other facts are
compared, including the number of adapters. If nearly all hosts of a group agree, the others are
outliers. A split group, for example during a rollout, has no outliers.

The metrics, for node_exporter's textfile collector, describe the components of each host.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING

from msgspec import Struct

from hbatune.checks.finding import Finding, Severity
from hbatune.facts.names import group_items, natural_key
from hbatune.fleet.compared_facts import FACT_RANKS, FactKind, HostFact, Scalar, Valued
from hbatune.fleet.hosts import MAX_NAMES, HostAudit, HostState, HostSummary, UnusableSnapshot
from hbatune.settings.table import Value
from hbatune.shipped import load_texts

if TYPE_CHECKING:
    from prometheus_client.core import GaugeMetricFamily


MIN_AGREEMENT = 2 / 3
"""Minimum fraction of hosts with the usual values: of two hosts, either could be the outlier."""

MIN_PEERS = 3
MAX_OUTLIERS = 0.1
"""Maximum fraction of hosts that can be outliers with the same values. One host always can."""


class PeerGroup(Struct, frozen=True):
    """A group of peers. ``adapters`` are the names of the adapter types, ``hosts`` the labels."""

    number: int
    adapters: tuple[str, ...]
    hosts: tuple[str, ...]


class Outlier(Struct, frozen=True):
    """A fact in which a host differs from its peers.

    ``found`` are its own values. ``agreeing`` of the ``compared`` hosts have the ``usual`` values.
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
    """A host with too few peers for a comparison, and the most similar larger group.

    ``group`` is that group's number, or None if no group has an adapter in common. ``lacks`` are
    the adapters that only the group has, ``besides`` the adapters that only the host has.
    """

    host: str
    adapters: tuple[str, ...]
    group: int | None
    lacks: tuple[str, ...]
    besides: tuple[str, ...]


NamedHosts = Mapping[str, HostAudit]
"""The hosts of a fleet by their unique labels, in natural order."""


def group_peers(hosts: NamedHosts) -> tuple[PeerGroup, ...]:
    """Return the peer groups, the largest first."""
    members = group_items(hosts, lambda label: hosts[label].alike)
    groups: list[PeerGroup] = []
    for kinds in sorted(members, key=lambda kinds: (-len(members[kinds]), kinds)):
        names = _name_adapters(hosts[label] for label in members[kinds])
        adapters = tuple(dict.fromkeys(names[kind] for kind in kinds))
        groups.append(PeerGroup(len(groups) + 1, adapters, tuple(members[kinds])))
    return tuple(groups)


def _name_adapters(hosts: Iterable[HostAudit]) -> dict[str, str]:
    """Return the names of each type of adapter: drives of one type can be of several models."""
    names_by_kind: dict[str, dict[str, None]] = defaultdict(dict)
    for host in hosts:
        for adapter in host.adapters:
            names_by_kind[adapter.kind][adapter.name] = None
    return {kind: " or ".join(list(names)[:MAX_NAMES]) for kind, names in names_by_kind.items()}


def find_outliers(groups: Iterable[PeerGroup], hosts: NamedHosts) -> tuple[Outlier, ...]:
    """Return the outliers, most important facts first, then in the order of hosts."""
    outliers = chain.from_iterable(_find_group_outliers(group, hosts) for group in groups)
    position = {label: number for number, label in enumerate(hosts)}
    return tuple(sorted(outliers, key=lambda row: (FACT_RANKS[row.kind], position[row.host])))


def _find_group_outliers(group: PeerGroup, hosts: NamedHosts) -> Iterator[Outlier]:
    facts: dict[tuple[FactKind, str, str], dict[str, HostFact]] = defaultdict(dict)
    for label in group.hosts:
        for fact in hosts[label].facts:
            facts[fact.key][label] = fact
    for key, holders in facts.items():
        counts = Counter(fact.values for fact in holders.values())
        usual, agreeing = counts.most_common(1)[0]
        compared = len(holders)
        if agreeing < MIN_AGREEMENT * compared:
            continue
        max_outliers = max(1, int(MAX_OUTLIERS * compared))
        for label, fact in holders.items():
            if fact.values != usual and counts[fact.values] <= max_outliers:
                yield Outlier(label, group.number, *key, fact.found, usual, agreeing, compared)


def find_lone(groups: Sequence[PeerGroup], hosts: NamedHosts) -> tuple[LoneHost, ...]:
    """Return the hosts in groups too small to compare. Such a host may have lost an adapter."""
    kinds = {group.number: set(hosts[group.hosts[0]].alike) for group in groups}
    large = [group for group in groups if len(group.hosts) >= MIN_PEERS]
    lone_hosts = []
    for group in groups:
        if len(group.hosts) >= MIN_PEERS:
            continue
        near = [peers for peers in large if kinds[peers.number] & kinds[group.number]]
        nearest = min(
            near, key=lambda peers: len(kinds[peers.number] ^ kinds[group.number]), default=None
        )
        peer_names = _name_adapters(hosts[label] for label in (nearest.hosts if nearest else ()))
        nearest_number = nearest.number if nearest else None
        for label in group.hosts:
            names = _name_adapters([hosts[label]])
            adapters = tuple(dict.fromkeys(names[kind] for kind in hosts[label].alike))
            lacks = tuple(peer_names[kind] for kind in peer_names if kind not in names)
            besides = tuple(names[kind] for kind in names if kind not in peer_names)
            lone_hosts.append(LoneHost(label, adapters, nearest_number, lacks, besides))
    return tuple(lone_hosts)


class AuditedHost(HostSummary, frozen=True, kw_only=True):
    """A host of the fleet with a unique ``name``.

    ``drift`` counts its drifting settings, ``odd`` the facts in which it differs from its peers,
    ``findings`` its findings by severity. ``group`` is the number of its group.
    """

    name: str
    drift: int
    odd: int
    findings: dict[Severity, int]
    group: int


class FleetDrift(Struct, frozen=True):
    """Drift that hosts have in common. ``targets`` is the total over all hosts."""

    profile: str
    setting: str
    kind: str
    current: Value | None
    value: Value | None
    rule: str
    source: str
    targets: int
    hosts: tuple[str, ...]


class FleetFinding(Struct, frozen=True):
    """Findings of one check and severity, with the text of the first host's finding."""

    id: str
    severity: Severity
    source: str
    targets: int
    hosts: tuple[str, ...]
    evidence: str
    advice: str


class Stocked(StrEnum):
    """The properties that the inventory counts."""

    ADAPTER = "adapter"
    FIRMWARE = "firmware"
    DRIVER = "driver"
    LINK = "link"
    PROFILE = "profile"
    KERNEL = "kernel"


class Stock(Struct, frozen=True):
    """A line of the inventory: ``count`` adapters of type ``of``, or hosts, have this value.

    ``of`` is None if hosts are counted. ``value`` is None if it is unknown or does not exist.
    """

    what: Stocked
    of: str | None
    value: str | None
    count: int
    hosts: tuple[str, ...]


class Audit(Struct, frozen=True):
    """The full result of an audit, the most severe and most common entries first."""

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
    def is_good(self) -> bool:
        """Whether all files were read, and all hosts are as their profiles require."""
        return not self.unusable and all(host.state is HostState.OK for host in self.hosts)


def audit_fleet(results: Iterable[HostAudit | UnusableSnapshot]) -> Audit:
    """Return the audit of all readable hosts, with the unusable files."""
    collected = list(results)
    read = [result for result in collected if isinstance(result, HostAudit)]
    unusable = [result for result in collected if isinstance(result, UnusableSnapshot)]
    not_understood = set(chain.from_iterable(host.not_understood for host in read))
    hosts = _name_hosts(read)
    groups = group_peers(hosts)
    outliers = find_outliers(groups, hosts)
    return Audit(
        hosts=tuple(_summarise_hosts(hosts, groups, outliers)),
        groups=groups,
        odd=outliers,
        lone=find_lone(groups, hosts),
        drift=tuple(_group_drift(hosts)),
        findings=tuple(_group_findings(hosts)),
        inventory=tuple(_count_inventory(hosts)),
        unusable=tuple(sorted(unusable, key=lambda file: natural_key(file.file))),
        not_understood=tuple(sorted(not_understood)),
    )


def _name_hosts(hosts: Sequence[HostAudit]) -> dict[str, HostAudit]:
    """Return the hosts by hostname, or by file if it is anonymous or not unique."""
    uses: Counter[str] = Counter()
    for host in hosts:
        uses.update({host.hostname, host.file})
    named_hosts = {}
    for host in hosts:
        needs_file = host.anonymous or uses[host.hostname] > 1  # its hostname is a hash
        named_hosts[host.file if needs_file else host.hostname] = host
    return dict(sorted(named_hosts.items(), key=lambda named_host: natural_key(named_host[0])))


def _summarise_hosts(
    hosts: NamedHosts, groups: Iterable[PeerGroup], outliers: Iterable[Outlier]
) -> Iterator[AuditedHost]:
    group_numbers = {name: group.number for group in groups for name in group.hosts}
    outlier_counts = Counter(outlier.host for outlier in outliers)
    for name, host in hosts.items():
        findings: Counter[Severity] = Counter()
        for finding in host.findings:
            findings[finding.example.severity] += finding.count
        yield AuditedHost(
            **{field: getattr(host, field) for field in HostSummary.__struct_fields__},
            name=name,
            drift=sum(drift.count for drift in host.drift),
            odd=outlier_counts[name],
            findings=dict(findings),
            group=group_numbers[name],
        )


_DriftKey = tuple[str, str, str, Value | None, Value | None, str, str]


def _group_drift(hosts: NamedHosts) -> list[FleetDrift]:
    counted: dict[_DriftKey, Counter[str]] = defaultdict(Counter)
    for name, host in hosts.items():
        for drift in host.drift:
            key = (host.profile or "", drift.setting, drift.kind, drift.current, drift.value)
            counted[*key, drift.rule, drift.source][name] += drift.count
    drifts = [FleetDrift(*key, counts.total(), tuple(counts)) for key, counts in counted.items()]
    return sorted(drifts, key=lambda drift: (-len(drift.hosts), -drift.targets))


def _group_findings(hosts: NamedHosts) -> list[FleetFinding]:
    counted: dict[tuple[str, Severity], Counter[str]] = defaultdict(Counter)
    examples: dict[tuple[str, Severity], Finding] = {}
    for name, host in hosts.items():
        for finding in host.findings:
            key = (finding.example.id, finding.example.severity)
            counted[key][name] += finding.count
            examples.setdefault(key, finding.example)
    entries = []
    for key, counts in counted.items():
        example = examples[key]
        texts = (example.evidence.describe(), example.evidence.advise(example.target))
        entries.append(FleetFinding(*key, example.source, counts.total(), tuple(counts), *texts))
    severities = list(reversed(Severity))
    return sorted(entries, key=lambda entry: (severities.index(entry.severity), -len(entry.hosts)))


def _count_inventory(hosts: NamedHosts) -> list[Stock]:
    counted: dict[tuple[Stocked, str | None, str | None], Counter[str]] = defaultdict(Counter)
    for name, host in hosts.items():
        counted[Stocked.PROFILE, None, host.profile][name] += 1
        counted[Stocked.KERNEL, None, host.kernel][name] += 1
        for adapter in host.adapters:
            counted[Stocked.ADAPTER, adapter.family, adapter.name][name] += 1
            counted[Stocked.FIRMWARE, adapter.name, adapter.firmware][name] += 1
            counted[Stocked.DRIVER, adapter.name, adapter.driver][name] += 1
            if adapter.link is not None:
                counted[Stocked.LINK, adapter.name, adapter.link][name] += 1
    rank = {what: number for number, what in enumerate(Stocked)}
    stocks = [Stock(*key, counts.total(), tuple(counts)) for key, counts in counted.items()]
    stocks.sort(key=lambda row: (rank[row.what], row.of or "", -row.count, row.value or ""))
    return stocks


def collect_metrics(audit: Audit, timestamp: float) -> "Iterator[GaugeMetricFamily]":
    """Yield the metrics of an audit. ``timestamp`` is in seconds since the epoch."""
    from prometheus_client.core import GaugeMetricFamily

    gauges: dict[str, GaugeMetricFamily] = {}
    for name, texts in load_texts("messages.toml")["audit_metrics"].items():
        metric = f"hbatune_audit_{name}"
        gauges[name] = GaugeMetricFamily(metric, texts["help"], labels=texts["labels"])
    for host in audit.hosts:
        profile, group = host.profile or "", str(host.group)
        labels = (host.name, profile, host.kernel, host.hbatune, group, str(host.state))
        gauges["host_info"].add_metric(labels, 1)
        # Without a full comparison, 0 would look like a good result.
        if host.state in (HostState.OK, HostState.DRIFT):
            gauges["drift_settings"].add_metric((host.name,), host.drift)
        gauges["odd_facts"].add_metric((host.name,), host.odd)
        gauges["snapshot_timestamp_seconds"].add_metric((host.name,), host.taken)
        for severity in Severity:
            count = host.findings.get(severity, 0)
            gauges["findings"].add_metric((host.name, str(severity)), count)
        for adapter in host.adapters:
            versions = (adapter.firmware or "", adapter.driver or "", adapter.link or "")
            identity = (host.name, adapter.target, adapter.family, adapter.name)
            gauges["adapter_info"].add_metric((*identity, *versions), 1)
    gauges["unusable_files"].add_metric((), len(audit.unusable))
    gauges["timestamp_seconds"].add_metric((), timestamp)
    yield from gauges.values()
