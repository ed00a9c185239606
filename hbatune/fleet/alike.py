"""Groups of alike hosts, and the odd ones out among them. Pure.

Hosts are alike when they have the same kinds of adapters, by driver and PCI ids. All else is
compared, how many there are of each kind among it. Where nearly all hosts of a group agree, the few
that differ are odd; where a group is divided, as in the middle of a rollout, nobody is.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from hbatune.fleet.facts import ORDER, FactKind, HostFact, Scalar, Valued
from hbatune.fleet.host import HostAudit

AGREE = 2 / 3
"""The share of hosts that have the usual values at least: of two nobody knows which one is odd."""

COMPARABLE = 3
"""Alike hosts from which on one of them can be odd."""

FEW = 0.1
"""The share of hosts that may have other values and be odd; one host always may."""


class AlikeHosts(Struct, frozen=True):
    """A group of alike hosts; ``adapters`` are the names of their kinds, ``hosts`` the labels."""

    number: int
    adapters: tuple[str, ...]
    hosts: tuple[str, ...]


class OddFact(Struct, frozen=True):
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


def group_alike(hosts: Sequence[tuple[str, HostAudit]]) -> tuple[AlikeHosts, ...]:
    """Return the groups of alike hosts, the largest first; each host comes with its label."""
    found: dict[tuple[str, ...], list[str]] = defaultdict(list)
    names: dict[tuple[str, ...], tuple[str, ...]] = {}
    for label, host in hosts:
        found[host.alike].append(label)
        named = {each.kind: each.name for each in host.adapters}
        names.setdefault(host.alike, tuple(dict.fromkeys(named[kind] for kind in host.alike)))
    ordered = sorted(found, key=lambda kinds: (-len(found[kinds]), kinds))
    return tuple(
        AlikeHosts(number, names[kinds], tuple(found[kinds]))
        for number, kinds in enumerate(ordered, 1)
    )


def find_odd(
    groups: Iterable[AlikeHosts], hosts: Sequence[tuple[str, HostAudit]]
) -> tuple[OddFact, ...]:
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
    groups: Sequence[AlikeHosts], hosts: Sequence[tuple[str, HostAudit]]
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
    own: AlikeHosts,
    large: Iterable[AlikeHosts],
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
    group: AlikeHosts, hosts: Iterable[tuple[str, tuple[HostFact, ...]]]
) -> Iterator[OddFact]:
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
                yield OddFact(
                    *(label, group.number, *key, fact.found),
                    *(usual, agreeing, len(having)),
                )
