"""The ways to a LUN, and its name: several paths, evenly preferred (D4-4), one name each."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from msgspec import Struct

from hbatune.checks.model import MACHINE, Check, CheckInput, Finding, Severity
from hbatune.facts.ids import UNNAMED, stable_name, stable_part
from hbatune.facts.model import Endpoint, Kind, Protocol
from hbatune.policy.match import objective, traits
from hbatune.policy.site_names import unmatched

_OPTIMIZED = ("active/optimized", "optimized")


class Balance(Struct, frozen=True):
    """How the LUNs that the same adapters reach are spread over them.

    ``preferred`` counts, for each adapter, the LUNs that are served by it first; ``undecided`` are
    LUNs that prefer none of them, or several.
    """

    preferred: dict[str, int]
    undecided: int

    @property
    def even(self) -> bool:
        """Whether no adapter is first for more than one LUN more than another."""
        counts = self.preferred.values()
        return max(counts) - min(counts) <= 1


def find_single_paths(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Name native NVMe drives with one path, where the profile has an objective for them.

    How many I/Os they will be asked for is not known here, so this is worth knowing and no more.
    """
    if seen.profile is None:
        return
    adapters = {adapter.target: adapter for adapter in seen.machine.adapters}
    for endpoint in seen.endpoints:
        alone = endpoint.kind is Kind.DISK and endpoint.protocol is Protocol.NVME
        if not alone or endpoint.tri_mode:
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

    The path that an array prefers is the one whose ``preferred_path`` says so; where none does, it
    is the one that ALUA or ANA calls optimized. LUNs of which nothing of the kind is known count
    for nothing.
    """
    sets: dict[frozenset[str], list[str | None]] = defaultdict(list)
    for paths in _luns(endpoints):
        adapters = frozenset(path.adapter for path in paths if path.adapter)
        if len(adapters) > 1 and any(_says_something(path) for path in paths):
            sets[adapters].append(_first(paths))
    return tuple(_balance(adapters, firsts) for adapters, firsts in sets.items())


def uneven_balances(endpoints: Iterable[Endpoint]) -> tuple[Balance, ...]:
    """Return the sets of adapters over which the preferred paths are not spread evenly."""
    return tuple(found for found in path_balances(endpoints) if not found.even)


def find_shared_names(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find disks with one name that no map joins: one LUN twice, or two drives with one name."""
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
    """Find disks that report no name at all, which are known by their place alone."""
    for each in seen.endpoints:
        if each.kind is not Kind.MAP and _nameless(each):
            yield check.found(Severity.INFO, each)


def find_unmatched_names(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find names in [site] that mean nothing on this machine."""
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
    """Return the adapter that serves the LUN first, None where that is none or several."""
    preferring = {path.adapter for path in paths if path.preferred is True}
    serving = preferring or {path.adapter for path in paths if path.access in _OPTIMIZED}
    return serving.pop() if len(serving) == 1 else None


def _balance(adapters: Iterable[str], firsts: list[str | None]) -> Balance:
    counts = Counter(firsts)
    return Balance({each: counts[each] for each in sorted(adapters)}, counts[None])


def _nameless(disk: Endpoint) -> bool:
    """Whether a disk's id says no more of it than its make."""
    return stable_part(disk.id) in (UNNAMED, stable_name("", disk.vendor, disk.model))
