"""D4-4: half of the arrays are to be preferred on each adapter of a pair."""

from typing import Any

from msgspec.structs import replace

from hbatune.checks.disk_checks import count_preferences
from hbatune.checks.finding import Finding
from hbatune.facts.model import Endpoint, Kind, Missing, Reason
from tests.unit.check_inputs import found, seen
from tests.unit.machines import adapter, endpoint, machine

UNKNOWN = Missing(Reason.UNREADABLE, 22)


def lun(number: int, *preferred: bool | Missing, **overrides: Any) -> list[Endpoint]:
    """The two paths to one LUN, over the adapters a and b."""
    return [
        endpoint(
            target=f"sd{number}{name}",
            id=f"wwn-{number}@{name}",
            adapter=name,
            **{"kind": Kind.PATH, "map": f"dm-{number}", "preferred": wish, **overrides},
        )
        for name, wish in zip("ab", preferred, strict=True)
    ]


A, B = (True, False), (False, True)


def find_uneven(paths: list[Endpoint]) -> list[Finding]:
    """Return the findings on adapters that the paths prefer more often."""
    adapters = (adapter(target="a"), adapter(target="b"))
    return found(seen(machine(*paths, adapters=adapters)), "preferred-paths")


def test_single_adapter_is_uneven() -> None:
    paths = [*lun(1, *A), *lun(2, *A), *lun(3, *A)]
    assert count_preferences(paths) == [{"a": 3, "b": 0}]
    assert [finding.target for finding in find_uneven(paths)] == ["a"]


def test_odd_path_split_is_even() -> None:
    assert not find_uneven([*lun(1, *A), *lun(2, *B)])
    assert not find_uneven([*lun(1, *A), *lun(2, *B), *lun(3, *A)])
    assert count_preferences([*lun(1, *A), *lun(2, *B)]) == [{"a": 1, "b": 1}]


def test_optimized_path_replaces_preferred() -> None:
    def served(number: int, *access: str) -> list[Endpoint]:
        paths = lun(number, False, False)
        return [replace(path, access=state) for path, state in zip(paths, access, strict=True)]

    first = ("active/optimized", "active/non-optimized")
    assert count_preferences([*served(1, *first), *served(2, *first)]) == [{"a": 2, "b": 0}]
    both = ("active/optimized", "active/optimized")
    assert count_preferences([*served(1, *both)]) == [{"a": 0, "b": 0}]


def test_unknown_preference_is_ignored() -> None:
    assert not count_preferences(lun(1, UNKNOWN, UNKNOWN))
    assert not count_preferences([endpoint(preferred=True)])


def test_names_join_unmapped_luns() -> None:
    bare = {"map": None, "kind": Kind.DISK}
    paths = [*lun(1, *A, **bare), *lun(2, *A, **bare)]
    assert count_preferences(paths) == [{"a": 2, "b": 0}]
