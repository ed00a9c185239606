"""Paths of maps: how many work, and that each adapter of a pair is preferred by half (D4-4)."""

from typing import Any

import pytest
from msgspec.structs import replace

from hbatune.checks.disk_checks import count_preferences
from hbatune.checks.finding import Finding
from hbatune.facts.attributes import ABSENT
from hbatune.facts.endpoints import SUSPENDED
from hbatune.facts.health import ErrorCounters
from hbatune.facts.model import Endpoint, Kind, Missing, Reason, Storage
from tests.unit.check_inputs import ADVICE, CRITICAL, WARNING, facts, found, only, seen
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


def multipath(name: str, *states: str | Missing, **overrides: Any) -> list[Endpoint]:
    """Return a map and its paths with these states."""
    paths = [
        endpoint(target=f"{name}p{number}", kind=Kind.PATH, map=name, state=state, id=f"p{number}")
        for number, state in enumerate(states)
    ]
    targets = tuple(path.target for path in paths)
    facts: dict[str, Any] = {"state": ABSENT, "model": "VRAID", "family": "dm_multipath"}
    facts = {**facts, "kind": Kind.MAP, "paths": targets, "id": f"wwn-{name}", **overrides}
    return [endpoint(target=name, **facts), *paths]


def find_lost(*endpoints: Endpoint, earlier: int = 0) -> list[Finding]:
    """Return the findings on lost paths; an ``earlier`` check has counted that many."""
    inputs = seen(machine(*endpoints))
    look = ErrorCounters("an earlier boot", 5, {}, {"wwn-dm-0": earlier})
    return found(replace(inputs, looks=(look,)), "map-paths")


@pytest.mark.parametrize("states", [(), ("offline", "transport-offline"), ("blocked",)])
def test_map_without_path_is_critical(states: tuple[str, ...]) -> None:
    finding = only(find_lost(*multipath("dm-0", *states)))
    assert (finding.severity, finding.target) == (CRITICAL, "dm-0")
    assert facts(finding)["working"] == 0


@pytest.mark.parametrize(
    "endpoints",
    [
        multipath("dm-0", "running", "offline"),
        multipath("dm-0", "live", "connecting"),
        [*multipath("dm-0", "running"), *multipath("dm-1", "running", "running")],
    ],
)
def test_lost_path_is_warned(endpoints: list[Endpoint]) -> None:
    finding = only(find_lost(*endpoints))
    assert (finding.severity, finding.target) == (WARNING, "dm-0")
    assert finding.evidence.describe() == "working paths: 1 of 2 (dm-0)"


def test_earlier_paths_are_remembered() -> None:
    finding = only(find_lost(*multipath("dm-0", "running"), earlier=4))
    assert (finding.severity, facts(finding)["expected"]) == (WARNING, 4)
    head, path = multipath("dm-0", "live", family="nvme")
    drive = replace(path, kind=Kind.DISK)
    assert only(find_lost(head, drive, earlier=2)).severity is WARNING


def test_single_paths_are_one_finding() -> None:
    """Another model has two paths, which says nothing about these."""
    heads = [path for number in range(10) for path in multipath(f"nvme{number}n1", "live")]
    other = multipath("nvme99n1", "live", "live", model="another")
    finding = only(find_lost(*heads, *other))
    assert (finding.severity, finding.target) == (ADVICE, "machine")
    assert facts(finding)["maps"] == tuple(f"nvme{number}n1" for number in range(10))


@pytest.mark.parametrize(
    ("storage", "kind", "count"),
    [
        (Storage.LOCAL, Kind.DISK, 0),  # the kernel makes a head of every drive
        (Storage.LOCAL, Kind.PATH, 1),
        (Storage.FABRIC, Kind.PATH, 1),
        (Storage.VIRTUAL, Kind.PATH, 0),
    ],
)
def test_head_by_design_passes(storage: Storage, kind: Kind, count: int) -> None:
    head, path = multipath("nvme0n1", "live", family="nvme", storage=storage)
    assert len(find_lost(head, replace(path, kind=kind))) == count
    assert len(find_lost(*multipath("dm-0", "running", storage=storage))) == 1


def test_path_without_state_works() -> None:
    assert not find_lost(*multipath("dm-0", ABSENT, ABSENT))
    unread = Missing(Reason.UNREADABLE, 5)
    assert only(find_lost(*multipath("dm-0", ABSENT, unread))).severity is WARNING


def test_suspended_map_is_warned() -> None:
    finding = only(find_lost(*multipath("dm-0", "running", "running", state=SUSPENDED)))
    assert (finding.severity, finding.target) == (WARNING, "dm-0")
    assert "I/O to it waits" in finding.evidence.describe()
