"""D4-4: half of the arrays preferred on each adapter of a pair. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable

from msgspec import Struct

from hbatune.facts.ids import stable_part
from hbatune.facts.model import Endpoint, Kind

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


def balances(endpoints: Iterable[Endpoint]) -> tuple[Balance, ...]:
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


def uneven(endpoints: Iterable[Endpoint]) -> tuple[Balance, ...]:
    """Return the sets of adapters over which the preferred paths are not spread evenly."""
    return tuple(found for found in balances(endpoints) if not found.even)


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
