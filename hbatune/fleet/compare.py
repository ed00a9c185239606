"""Compare two hosts, or one host at two times, most important differences first. Pure."""

from collections.abc import Sequence

from msgspec import Struct

from hbatune.fleet import compared_facts
from hbatune.fleet.compared_facts import FACT_RANKS, FactKind, HostFact, Valued
from hbatune.settings.table import SETTINGS
from hbatune.shipped import load_texts
from hbatune.snapshot.file import Snapshot

_COUNTED = (FactKind.ERRORS, FactKind.COUNTERS)


class Difference(Struct, frozen=True):
    """A fact in which two hosts differ. A host without the fact has no values."""

    kind: FactKind
    subject: str
    what: str
    first: tuple[Valued, ...]
    second: tuple[Valued, ...]
    source: str | None


class ComparedHost(Struct, frozen=True):
    """One of the hosts: its name, kernel and snapshot time (seconds since the epoch)."""

    name: str
    kernel: str
    taken: int


class HostComparison(Struct, frozen=True, kw_only=True):
    """The JSON document of `compare`; ``differences`` start with the most important one.

    ``same`` counts the equal facts. ``one_host`` is true if both snapshots are of one host,
    ``one_boot`` if they are of one boot. Within one boot, errors are counted since the first
    snapshot, otherwise since each boot.
    """

    schema: str = "hbatune.compare/1"
    first: ComparedHost
    second: ComparedHost
    one_host: bool
    one_boot: bool
    differences: tuple[Difference, ...]
    same: int


def compare_hosts(first: Snapshot, second: Snapshot) -> HostComparison:
    """Compare the second host with the first."""
    first_facts, second_facts = compared_facts.pair_facts(first, second)
    differences, same = _find_differences(first_facts, second_facts)
    return HostComparison(
        first=ComparedHost(first.machine.hostname, first.machine.kernel, first.taken),
        second=ComparedHost(second.machine.hostname, second.machine.kernel, second.taken),
        one_host=first.machine.hostname == second.machine.hostname,
        one_boot=first.machine.boot_id == second.machine.boot_id,
        differences=tuple(differences),
        same=same,
    )


def _find_differences(
    first_facts: Sequence[HostFact], second_facts: Sequence[HostFact]
) -> tuple[list[Difference], int]:
    first = {fact.key: fact for fact in first_facts}
    second = {fact.key: fact for fact in second_facts}
    # A subject that only one host has counts as a single difference: its presence.
    both = {fact.subject for fact in first_facts} & {fact.subject for fact in second_facts}
    differences, same = list[Difference](), 0
    sources = load_texts("messages.toml")["fact_source"]
    for key in dict.fromkeys((*first, *second)):
        kind, subject, aspect = key
        first_fact, second_fact = first.get(key), second.get(key)
        if subject not in both and kind is not FactKind.PRESENCE:
            continue
        if first_fact and second_fact and first_fact.values == second_fact.values:
            same += 1
            continue
        sides = (_get_values(first_fact, kind), _get_values(second_fact, kind))
        is_setting = kind is FactKind.SETTING and aspect in SETTINGS
        source = SETTINGS[aspect].source if is_setting else sources.get(kind.name)
        differences.append(Difference(kind, subject, aspect, *sides, source))
    # The depth of disks precedes the depth of the host.
    differences.sort(key=lambda row: (FACT_RANKS[row.kind], row.what not in SETTINGS))
    return differences, same


def _get_values(fact: HostFact | None, kind: FactKind) -> tuple[Valued, ...]:
    if fact is not None:
        return fact.found
    return (Valued(0, 1, ()),) if kind in _COUNTED else ()
