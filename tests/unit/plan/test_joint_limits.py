"""No path of a map differs from the other paths, and none is lowered to get there."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hbatune.facts.model import (
    Attribute,
    Endpoint,
    Kind,
    Medium,
    Missing,
    Protocol,
    Reason,
    StackedDevice,
)
from hbatune.plan import make
from hbatune.plan.make import PlanLimits
from hbatune.plan.rows import Row, State
from hbatune.policy.profile import AtLeast, Effect, Exactly, Match, Rule
from hbatune.text.limit_text import Limit, LimitReason, describe_limit
from tests.unit.machines import attributes, endpoint, machine
from tests.unit.profiles import profile

Wish = tuple[str, Effect]
AT_LEAST_128: Wish = ("queue_depth", AtLeast(128))


def path(target: str, depth: int | None = 32, cap: int = 1000, **overrides: Any) -> Endpoint:
    disk_attributes: dict[str, Attribute | Missing] = (
        attributes(device__queue_depth=str(depth))
        if depth is not None
        else {"device/queue_depth": Missing(Reason.UNREADABLE)}
    )
    fields = {"kind": Kind.PATH, "map": "dm-0", "depth_cap": cap, "attributes": disk_attributes}
    return endpoint(target=target, **{**fields, **overrides})


def rows(*paths: Endpoint, wishes: tuple[Wish, ...] = (AT_LEAST_128,), **how: Any) -> list[Row]:
    named = make.EarlierChanges(targets_named=True)  # a low depth is nobody's decision
    return list(make.make_plan(machine(*paths), profile(*wishes), earlier=named, **how).rows)


def values(planned_rows: list[Row]) -> list[tuple[object, State]]:
    return [(row.value, row.state) for row in planned_rows]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        # (depth, cap) of each path; alike already
        ((32, 1000), (32, 1000), ((128, State.DRIFT), (128, State.DRIFT))),
        # the smaller cap is the level
        ((32, 1000), (32, 64), ((64, State.DRIFT), (64, State.DRIFT))),
        # one is deeper than asked for: the other follows it up
        ((254, 1000), (32, 1000), ((254, State.OK), (254, State.DRIFT))),
        # ... as far as both go
        ((32, 100), (64, 80), ((80, State.DRIFT), (80, State.DRIFT))),
        # nothing but lowering would make them alike: each keeps its own
        ((254, 1000), (32, 128), ((254, State.OK), (128, State.DRIFT))),
    ],
)
def test_paths_rise_to_common_maximum(
    first: tuple[int, int],
    second: tuple[int, int],
    expected: tuple[tuple[int, State], tuple[int, State]],
) -> None:
    planned_rows = rows(path("sda", *first), path("sdb", *second))
    assert values(planned_rows) == list(expected)
    if expected[0][0] != expected[1][0]:
        assert all("none is lowered" in describe_limit(row.limit) for row in planned_rows)
    for row in planned_rows:
        assert row.value == row.wanted or row.limit


def test_limit_names_deciding_path() -> None:
    planned_rows = rows(path("sda"), path("sdb", cap=64))
    assert "sdb takes 64 at most" in describe_limit(planned_rows[0].limit)
    planned_rows = rows(path("sda", 254), path("sdb"))
    assert "sda is at 254" in describe_limit(planned_rows[1].limit)


def test_unequal_budgets_take_smallest() -> None:
    paths = [path("sda", 64), path("sdb", 64)]
    for disk in paths:
        assert disk.protocol is Protocol.SAS
    site = {
        disk.id: Rule(
            "b", Match(), "queue_depth", Exactly(depth), "because", "D0-2", "hbatune.toml"
        )
        for disk, depth in zip(paths, (40, 25), strict=True)
    }
    planned_rows = rows(*paths, wishes=(AT_LEAST_128,), limits=PlanLimits(site_rules=site))
    assert values(planned_rows) == [(25, State.DRIFT), (25, State.DRIFT)]
    assert planned_rows[0].wanted == 40
    assert "sdb takes 25" in describe_limit(planned_rows[0].limit)


def test_fixed_sibling_stops_path_change() -> None:
    stuck: dict[str, Attribute | Missing] = {"device/queue_depth": Attribute("32", False)}
    planned_rows = rows(path("sda", 32), path("sdb", attributes=stuck))
    assert values(planned_rows) == [(32, State.OK), (None, State.FIXED)]
    assert "sdb" in describe_limit(planned_rows[0].limit)


def test_selected_path_never_changes_alone() -> None:
    first, second = path("sda"), path("sdb")
    alone = rows(first, second, only={first.id})
    assert [(row.target, row.value, row.state) for row in alone] == [("sda", 32, State.OK)]
    excluded = rows(
        first, second, limits=PlanLimits(excluded={second.id: LimitReason(Limit.EXCLUDED)})
    )
    assert values(excluded) == [(32, State.OK), (None, State.EXCLUDED)]


def test_path_follows_sibling_within_plan() -> None:
    first, second = path("sda", 32), path("sdb", 64)
    planned_rows = rows(first, second, only={first.id})
    assert values(planned_rows) == [(64, State.DRIFT)]


def test_path_ignores_sibling_beyond_plan() -> None:
    first, second = path("sda", 32), path("sdb", 500)
    assert values(rows(first, second, only={first.id})) == [(32, State.OK)]


def test_unreadable_path_limits_no_sibling() -> None:
    planned_rows = rows(path("sda"), path("sdb"), path("sdc", None))
    assert values(planned_rows)[:2] == [(128, State.DRIFT), (128, State.DRIFT)]


def test_unmapped_disks_are_independent() -> None:
    lone: dict[str, Any] = {"kind": Kind.DISK, "map": None}
    planned_rows = rows(path("sda", cap=1000, **lone), path("sdb", cap=64, **lone))
    assert [row.value for row in planned_rows] == [128, 64]


def members(
    *disks: Endpoint, volumes: int = 1, only: set[str] | None = None, **how: Any
) -> dict[str, Row]:
    """Return the rows of disks below one device; further devices share a disk with it."""
    names = tuple(disk.target for disk in disks)
    shared = [StackedDevice(f"dm-{n}", f"vg0/{n}", names[1:]) for n in range(volumes)]
    host = replace(machine(*disks), stacks=(StackedDevice("md127", "md127", names[:2]), *shared))
    named = make.EarlierChanges(targets_named=True)
    plan = make.make_plan(host, profile(AT_LEAST_128), only=only, earlier=named, **how)
    return {row.target: row for row in plan.rows}


LONE: dict[str, Any] = {"kind": Kind.DISK, "map": None}


def test_members_of_stack_are_treated_alike() -> None:
    """The third disk shares a volume with the second one only."""
    first, second, third = path("sda", **LONE), path("sdb", cap=64, **LONE), path("sdc", **LONE)
    planned_rows = members(first, second, third)
    assert [row.value for row in planned_rows.values()] == [64, 64, 64]
    reason = "equal on all paths or members: sdb takes 64 at most"
    assert describe_limit(planned_rows["sda"].limit) == reason


def test_named_member_gets_the_value_of_all() -> None:
    first, second = path("sda", **LONE), path("sdb", cap=64, **LONE)
    planned_rows = members(first, second, only={first.id})
    assert {name: row.value for name, row in planned_rows.items()} == {"sda": 64}


def test_decision_on_member_counts_for_others() -> None:
    first, second = path("sda", **LONE), path("sdb", 8, **LONE)
    limits = PlanLimits(excluded={second.id: LimitReason(Limit.EXCLUDED)})
    row = members(first, second, limits=limits)["sda"]
    assert (row.value, row.state) == (32, State.OK)
    reason = "left like the other paths or members: sdb must not be changed"
    assert describe_limit(row.limit) == reason


def test_members_of_other_types_differ() -> None:
    """An SSD in front of a hard disk, as of bcache and LVM's cache, is unlike it on purpose."""
    first, second = path("sda", **LONE), path("sdb", cap=64, medium=Medium.HDD, **LONE)
    assert [row.value for row in members(first, second).values()] == [128, 64]


def test_volumes_do_not_make_a_group_large() -> None:
    """The limit is for disks: a mirror with hundreds of volumes has two."""
    first, second, third = path("sda", **LONE), path("sdb", cap=64, **LONE), path("sdc", **LONE)
    planned_rows = members(first, second, third, volumes=300)
    assert [row.value for row in planned_rows.values()] == [64, 64, 64]


def test_large_stacks_are_not_joined() -> None:
    """A group of hundreds of disks would be read whole at each event of one of them."""
    disks = [path(f"sd{number}", cap=64 + number, **LONE) for number in range(257)]
    planned_rows = members(*disks)
    assert (planned_rows["sd0"].value, planned_rows["sd60"].value) == (64, 124)


def hidden(target: str, tags: int, scheduler: str = "[none] mq-deadline") -> Endpoint:
    disk_attributes = attributes(queue__scheduler=scheduler, queue__nr_requests=str(tags))
    return path(target, map="nvme0n1", tags=tags, attributes=disk_attributes)


NVME: tuple[Wish, ...] = (("scheduler", Exactly("none")), ("nr_requests", Exactly(2048)))


def test_hidden_paths_preserve_different_tags() -> None:
    planned_rows = rows(hidden("nvme0c0n1", 1023), hidden("nvme0c1n1", 127), wishes=NVME)
    requests = [row for row in planned_rows if row.setting == "nr_requests"]
    assert values(requests) == [(1023, State.OK), (127, State.OK)]
    assert all("differs from other paths" in describe_limit(row.limit) for row in requests)


def test_hidden_path_preserves_sibling_scheduler() -> None:
    first = hidden("nvme0c0n1", 1023, "[mq-deadline] none")
    second = hidden("nvme0c1n1", 1023, "[mq-deadline] none")
    planned_rows = rows(first, second, wishes=NVME, only={first.id})
    assert [(row.setting, row.value) for row in planned_rows] == [
        ("scheduler", "mq-deadline"),
        ("nr_requests", 1023),
    ]


def test_requests_follow_preserved_sibling_scheduler() -> None:
    both = [hidden(f"nvme0c{n}n1", 1023, "[mq-deadline] none") for n in range(2)]
    third = path(
        "nvme0c2n1", map="nvme0n1", attributes=attributes(queue__scheduler="[mq-deadline] none")
    )
    planned_rows = rows(
        *both,
        third,
        wishes=NVME,
        limits=PlanLimits(excluded={third.id: LimitReason(Limit.EXCLUDED)}),
    )
    assert [(row.setting, row.value) for row in planned_rows][:4] == [
        ("scheduler", "mq-deadline"),
        ("nr_requests", 2048),
    ] * 2


depths = st.tuples(st.integers(1, 500), st.integers(1, 500)).map(sorted)


@given(st.lists(depths, min_size=2, max_size=5), st.integers(1, 600))
def test_planned_path_depths_are_legal(paths: list[list[int]], wanted: int) -> None:
    disks = [path(f"sd{chr(97 + n)}", depth, cap) for n, (depth, cap) in enumerate(paths)]
    depths = [row.value for row in rows(*disks, wishes=(("queue_depth", AtLeast(wanted)),))]
    numbers = [value for value in depths if isinstance(value, int)]
    assert len(numbers) == len(paths)
    for value, (depth, cap) in zip(numbers, paths, strict=True):
        assert depth <= value <= cap
    if max(depth for depth, _ in paths) <= min(cap for _, cap in paths):
        assert len(set(numbers)) == 1
