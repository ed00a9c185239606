"""Checks of paths and names: several paths, evenly preferred (D4-4), and unique names."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from msgspec import Struct

from hbatune.checks.model import MACHINE, Check, CheckInput, Finding, Severity
from hbatune.facts.ids import UNNAMED, stable_name, stable_part
from hbatune.facts.model import Endpoint, Kind, Protocol, Storage
from hbatune.policy.match import objective, traits, unmatched

_OPTIMIZED = ("active/optimized", "optimized")


class Balance(Struct, frozen=True):
    """The distribution of preferred paths over adapters that reach the same LUNs.

    ``preferred`` has for each adapter the number of LUNs that prefer it; ``undecided`` is the
    number of LUNs that prefer none of them, or several.
    """

    preferred: dict[str, int]
    undecided: int

    @property
    def even(self) -> bool:
        """Whether the numbers of LUNs per adapter differ by one at most."""
        counts = self.preferred.values()
        return max(counts) - min(counts) <= 1


def find_single_paths(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find NVMe drives with one path, native or behind an HBA, for which there is an objective.

    The rate of I/Os to come is not known here, so the finding is only informational.
    """
    if seen.profile is None:
        return
    adapters = {adapter.target: adapter for adapter in seen.machine.adapters}
    for endpoint in seen.endpoints:
        alone = endpoint.kind is Kind.DISK and endpoint.protocol is Protocol.NVME
        if not alone or endpoint.storage is Storage.VIRTUAL:
            continue
        goal = objective(seen.profile, traits(endpoint, adapters.get(endpoint.adapter or "")))
        if goal is not None:
            yield check.found(
                Severity.INFO, endpoint, profile=seen.profile.name, objective_ms=goal.p99_ms
            )


def find_uneven_preference(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find adapters that the arrays prefer more often than others that reach the same LUNs."""
    adapters = {adapter.target: adapter for adapter in seen.machine.adapters}
    for balance in uneven_balances(seen.endpoints):
        busiest, most = Counter(balance.preferred).most_common(1)[0]
        yield check.found(
            Severity.ADVICE,
            adapters[busiest],
            preferred=most,
            least=min(balance.preferred.values()),
            adapters=tuple(balance.preferred),
        )


def path_balances(endpoints: Iterable[Endpoint]) -> tuple[Balance, ...]:
    """Return the balance of each set of adapters that reach the same LUNs, the uneven ones too.

    The path that an array prefers is the one whose ``preferred_path`` says so, or else the one that
    ALUA or ANA calls optimized. LUNs without any of this information are left out.
    """
    sets: dict[frozenset[str], list[str | None]] = defaultdict(list)
    for paths in _luns(endpoints):
        adapters = frozenset(path.adapter for path in paths if path.adapter)
        if len(adapters) > 1 and any(_says_something(path) for path in paths):
            sets[adapters].append(_first(paths))
    return tuple(_balance(adapters, firsts) for adapters, firsts in sets.items())


def uneven_balances(endpoints: Iterable[Endpoint]) -> tuple[Balance, ...]:
    """Return the balances that are uneven."""
    return tuple(found for found in path_balances(endpoints) if not found.even)


def find_shared_names(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find disks that share a name without a map: one LUN seen twice, or two drives."""
    asked = {each.id for each in seen.endpoints}
    named: dict[str, list[Endpoint]] = defaultdict(list)
    for each in seen.machine.endpoints:
        if each.kind is Kind.DISK and not _nameless(each):
            named[stable_part(each.id)].append(each)
    for name, alike in named.items():
        for each in alike if len(alike) > 1 else ():
            if each.id in asked:
                others = tuple(other.target for other in alike if other is not each)
                yield check.found(Severity.WARNING, each, name=name, others=others)


def find_missing_names(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find disks without a name, which can only be identified by their place."""
    for each in seen.endpoints:
        if each.kind is not Kind.MAP and _nameless(each):
            yield check.found(Severity.INFO, each)


def find_unmatched_names(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find names in [site] that match nothing on this machine."""
    for each in unmatched(seen.machine, seen.site):
        yield check.found(Severity.WARNING, MACHINE, key=each.key, name=each.name)


def _luns(endpoints: Iterable[Endpoint]) -> Iterable[list[Endpoint]]:
    """Return the paths to each LUN: those of one map, or those of one stable name."""
    luns: dict[str, list[Endpoint]] = defaultdict(list)
    for each in endpoints:
        if each.kind is not Kind.MAP:
            luns[each.map or stable_part(each.id)].append(each)
    return luns.values()


def _says_something(path: Endpoint) -> bool:
    return isinstance(path.access, str) or isinstance(path.preferred, bool)


def _first(paths: Iterable[Endpoint]) -> str | None:
    """Return the adapter that the LUN prefers, None where there is none or several."""
    preferring = {path.adapter for path in paths if path.preferred is True}
    serving = preferring or {path.adapter for path in paths if path.access in _OPTIMIZED}
    return serving.pop() if len(serving) == 1 else None


def _balance(adapters: Iterable[str], firsts: list[str | None]) -> Balance:
    counts = Counter(firsts)
    return Balance({each: counts[each] for each in sorted(adapters)}, counts[None])


def _nameless(disk: Endpoint) -> bool:
    """Whether a disk's id consists of vendor and model only."""
    return stable_part(disk.id) in (UNNAMED, stable_name("", disk.vendor, disk.model))
