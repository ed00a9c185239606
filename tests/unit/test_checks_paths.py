"""D4-4: half of the arrays are to be preferred on each adapter of a pair."""

from typing import Any

from msgspec.structs import replace

from hbatune.checks.disk_checks import Balance, compute_balances, find_uneven_balances
from hbatune.facts.model import Endpoint, Kind, Missing, Reason
from tests.unit.factory import endpoint

UNKNOWN = Missing(Reason.UNREADABLE, 22)


def lun(number: int, *preferred: bool | Missing, **overrides: Any) -> list[Endpoint]:
    """The two paths to one LUN, over the adapters a and b."""
    return [
        endpoint(
            target=f"sd{number}{adapter}",
            id=f"wwn-{number}@{adapter}",
            adapter=adapter,
            **{"kind": Kind.PATH, "map": f"dm-{number}", "preferred": wish, **overrides},
        )
        for adapter, wish in zip("ab", preferred, strict=True)
    ]


A, B = (True, False), (False, True)


def test_single_adapter_is_uneven() -> None:
    paths = [*lun(1, *A), *lun(2, *A), *lun(3, *A)]
    assert find_uneven_balances(paths) == (Balance({"a": 3, "b": 0}, 0),)


def test_odd_path_split_is_even() -> None:
    assert not find_uneven_balances([*lun(1, *A), *lun(2, *B)])
    assert not find_uneven_balances([*lun(1, *A), *lun(2, *B), *lun(3, *A)])
    assert compute_balances([*lun(1, *A), *lun(2, *B)]) == (Balance({"a": 1, "b": 1}, 0),)


def test_optimized_path_replaces_preferred() -> None:
    def served(number: int, *access: str) -> list[Endpoint]:
        paths = lun(number, False, False)
        return [replace(path, access=state) for path, state in zip(paths, access, strict=True)]

    first = ("active/optimized", "active/non-optimized")
    assert find_uneven_balances([*served(1, *first), *served(2, *first)]) == (
        Balance({"a": 2, "b": 0}, 0),
    )
    both = ("active/optimized", "active/optimized")
    assert compute_balances([*served(1, *both)]) == (Balance({"a": 0, "b": 0}, 1),)


def test_unknown_preference_is_ignored() -> None:
    assert not compute_balances(lun(1, UNKNOWN, UNKNOWN))
    assert not compute_balances([endpoint(preferred=True)])


def test_names_join_unmapped_luns() -> None:
    bare = {"map": None, "kind": Kind.DISK}
    paths = [*lun(1, *A, **bare), *lun(2, *A, **bare)]
    assert find_uneven_balances(paths) == (Balance({"a": 2, "b": 0}, 0),)
