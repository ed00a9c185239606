"""The plan: limits resolved ahead, nothing lowered that must not be, the unknown left alone."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hbatune.errors import UsageError
from hbatune.facts.model import Attribute, Endpoint, Kind, Missing, Protocol, Reason
from hbatune.plan import make
from hbatune.plan.joint_limits import REQUEST_BYTES, require_affordable, without_requests
from hbatune.plan.make import EarlierChanges, PlanLimits
from hbatune.plan.rows import RevertedValue, Row, State
from hbatune.policy.profile import (
    AtLeast,
    Effect,
    Exactly,
    Leave,
    Origin,
)
from hbatune.text.limit_text import Limit, LimitReason, describe_limit
from tests.unit.machines import attributes, endpoint, machine
from tests.unit.profiles import DEADLINE, REQUESTS, profile


def queue(
    scheduler: str = "[none] mq-deadline ", requests: str = "256", depth: str = "32"
) -> dict[str, Attribute | Missing]:
    return attributes(
        queue__scheduler=scheduler, queue__nr_requests=requests, device__queue_depth=depth
    )


def rows(disk: Endpoint, *effects: tuple[str, Effect]) -> dict[str, Row]:
    return {row.setting: row for row in make.make_plan(machine(disk), profile(*effects)).rows}


NONE = ("scheduler", Exactly("none"))


@pytest.mark.parametrize(
    ("scheduler", "current", "tags", "effects", "value", "limit"),
    [
        # with a scheduler: as wanted, up to 2048 whatever the tag set is
        ("[none] mq-deadline", "32", 32, (DEADLINE, REQUESTS), 2048, None),
        ("none [mq-deadline]", "256", 1023, (REQUESTS,), 2048, None),
        # with none: the tag set, and what that is
        ("[none] mq-deadline", "1023", 1023, (NONE, REQUESTS), 1023, "tag set of 1023"),
        ("[none] mq-deadline", "975", 975, (REQUESTS,), 975, "tag set of 975"),
        # a switch to none gives the whole tag set, whatever it was before
        ("[mq-deadline] none", "2048", 446, (NONE, REQUESTS), 446, "tag set of 446"),
        # somebody shrank it: raised again, never beyond the tag set
        ("[none] mq-deadline", "32", 192, (NONE, REQUESTS), 192, "tag set of 192"),
    ],
)
def test_requests_fit_planned_scheduler(
    scheduler: str,
    current: str,
    tags: int,
    effects: tuple[tuple[str, Effect], ...],
    value: int,
    limit: str | None,
) -> None:
    rows_by_setting = rows(endpoint(attributes=queue(scheduler, current), tags=tags), *effects)
    row = rows_by_setting["nr_requests"]
    assert (row.wanted, row.value) == (2048, value)
    assert (limit or "") in describe_limit(row.limit)
    assert (row.limit is None) == (limit is None)
    assert row.state is (State.OK if value == int(current) else State.DRIFT)


@pytest.mark.parametrize("switched", [True, False])
def test_requests_never_drop_without_scheduler(switched: bool) -> None:
    before = "[mq-deadline] none" if switched else "[none] mq-deadline"
    disk = endpoint(attributes=queue(before, "192"), tags=192)
    row = rows(disk, NONE, ("nr_requests", Exactly(64)))["nr_requests"]
    assert row.value == 192
    text = "with scheduler none a disk has its adapter's 192 tags; 64 would limit all its disks"
    assert describe_limit(row.limit) == text


def test_depth_is_only_raised() -> None:
    wish = ("queue_depth", AtLeast(64))
    # No driver of its own: nothing is known of its initial depth.
    shallow = endpoint(attributes=queue(depth="32"), depth_cap=254, family="scsi_debug")
    raised = rows(shallow, wish)["queue_depth"]
    assert (raised.value, raised.state) == (64, State.DRIFT)
    higher = rows(endpoint(attributes=queue(depth="254"), depth_cap=254), wish)["queue_depth"]
    assert (higher.value, higher.state) == (254, State.OK)
    assert "never lowered" in describe_limit(higher.limit)
    small = endpoint(attributes=queue(depth="16"), depth_cap=32, family="scsi_debug")
    capped = rows(small, wish)["queue_depth"]
    assert (capped.value, capped.state) == (32, State.DRIFT)
    assert "32" in describe_limit(capped.limit)


def test_read_only_depth_is_fixed() -> None:
    given_depth: dict[str, Attribute | Missing] = {"device/queue_depth": Attribute("16", False)}
    row = rows(endpoint(attributes=given_depth), ("queue_depth", AtLeast(17)))["queue_depth"]
    assert (row.state, row.value, row.current) == (State.FIXED, None, 16)


@pytest.mark.parametrize("minimum", [4, 16])
def test_read_only_depth_above_minimum_is_ok(minimum: int) -> None:
    given_depth: dict[str, Attribute | Missing] = {"device/queue_depth": Attribute("16", False)}
    row = rows(endpoint(attributes=given_depth), ("queue_depth", AtLeast(minimum)))["queue_depth"]
    assert (row.state, row.value, row.current) == (State.OK, 16, 16)
    assert "read-only" in describe_limit(row.limit)


def test_unread_limit_makes_setting_unreadable() -> None:
    unread = Missing(Reason.UNREADABLE, 24)
    limits = (
        (endpoint(attributes=queue(depth="32"), depth_cap=unread), ("queue_depth", AtLeast(64))),
        (endpoint(attributes={**queue("none"), "mq/0/nr_tags": unread}), REQUESTS),
    )
    for disk, wish in limits:
        row = rows(disk, wish)[wish[0]]
        assert (row.state, row.value) == (State.UNREADABLE, None)


def test_unselectable_scheduler_is_fixed() -> None:
    row = rows(endpoint(attributes=queue("none")), DEADLINE)["scheduler"]
    assert row.state is State.FIXED


@pytest.mark.parametrize(
    ("missing", "state"),
    [
        (Missing(Reason.ABSENT), State.ABSENT),
        (Missing(Reason.UNREADABLE, 110, "device state is blocked"), State.UNREADABLE),
        (Missing(Reason.VANISHED), State.UNREADABLE),
        (Attribute("garbage", True), State.UNREADABLE),
    ],
)
def test_unreadable_setting_is_not_planned(missing: Attribute | Missing, state: State) -> None:
    unread: dict[str, Attribute | Missing] = {"queue/nr_requests": missing}
    row = rows(endpoint(attributes=unread), REQUESTS)["nr_requests"]
    assert (row.state, row.current, row.value) == (state, None, None)


def test_unknown_zoned_endpoints_excluded() -> None:
    unknown = rows(endpoint(protocol=Protocol.UNKNOWN, attributes=queue()), DEADLINE, REQUESTS)
    zoned = rows(endpoint(zoned=True, attributes=queue()), DEADLINE, REQUESTS)
    empty = rows(endpoint(size=0, attributes=queue()), DEADLINE, REQUESTS)
    for row in (*unknown.values(), *zoned.values(), *empty.values()):
        assert (row.state, row.value) == (State.EXCLUDED, None)


@pytest.mark.parametrize(
    ("scheduler", "origin", "plugs_zones", "state"),
    [
        ("mq-deadline", Origin.SITE, False, State.DRIFT),
        ("mq-deadline", Origin.SHIPPED, False, State.EXCLUDED),
        ("kyber", Origin.SITE, False, State.EXCLUDED),
        ("kyber", Origin.SITE, None, State.EXCLUDED),
        ("kyber", Origin.SITE, True, State.DRIFT),
        ("none", Origin.SITE, False, State.EXCLUDED),
        ("none", Origin.SITE, True, State.OK),
        ("none", Origin.SHIPPED, True, State.EXCLUDED),
    ],
)
def test_zoned_disk_takes_safe_local_scheduler(
    scheduler: str, origin: Origin, plugs_zones: bool | None, state: State
) -> None:
    attributes = queue("[none] mq-deadline kyber")
    disk = endpoint(zoned=True, plugs_zones=plugs_zones, attributes=attributes)
    wanted = profile(("scheduler", Exactly(scheduler)), REQUESTS)
    local = tuple(replace(rule, origin=origin) for rule in wanted.rules)
    plan = make.make_plan(machine(disk), replace(wanted, rules=local))
    first, second = plan.rows
    assert (first.setting, first.state) == ("scheduler", state)
    assert first.value == (None if state is State.EXCLUDED else scheduler)
    assert (second.state, second.limit) == (State.EXCLUDED, LimitReason(Limit.ZONED))
    excluded = PlanLimits(excluded={disk.id: LimitReason(Limit.EXCLUDED)})
    plan = make.make_plan(machine(disk), replace(wanted, rules=local), limits=excluded)
    assert {row.state for row in plan.rows} == {State.EXCLUDED}


def test_reverted_value_stays_reverted() -> None:
    disk = endpoint(attributes=queue())
    tried = EarlierChanges(reverted={RevertedValue(disk.id, "nr_requests", 2048)})
    effects = (DEADLINE, REQUESTS)
    rows_by_setting = {
        r.setting: r for r in make.make_plan(machine(disk), profile(*effects), earlier=tried).rows
    }
    reverted = rows_by_setting["nr_requests"]
    assert (reverted.state, reverted.limit) == (State.EXCLUDED, LimitReason(Limit.REVERTED))
    assert rows_by_setting["scheduler"].state is State.DRIFT
    lower_effects = (DEADLINE, ("nr_requests", Exactly(1024)))
    rows = make.make_plan(machine(disk), profile(*lower_effects), earlier=tried).rows
    assert {row.state for row in rows} == {State.DRIFT}


def test_excluded_endpoint_states_reason() -> None:
    disk = endpoint(attributes=queue())
    reason = LimitReason(Limit.EXCLUDED)
    limits = PlanLimits(excluded={disk.id: reason})
    planned = make.make_plan(machine(disk), profile(DEADLINE), limits=limits)
    assert [(row.state, row.limit) for row in planned.rows] == [(State.EXCLUDED, reason)]
    assert not planned.drift


def test_last_rule_or_leave_decides() -> None:
    rows_by_setting = rows(endpoint(attributes=queue()), DEADLINE, ("scheduler", Leave()), REQUESTS)
    assert set(rows_by_setting) == {"nr_requests"}
    later = rows(endpoint(attributes=queue()), DEADLINE, NONE)["scheduler"]
    assert (later.value, later.rule) == ("none", "rule-1")


def test_rows_follow_write_order() -> None:
    effects = (("read_ahead_kb", Exactly(128)), REQUESTS, ("queue_depth", AtLeast(1)), DEADLINE)
    planned = make.make_plan(machine(endpoint(attributes=queue())), profile(*effects))
    assert [row.setting for row in planned.rows] == [
        "scheduler",
        "queue_depth",
        "nr_requests",
        "read_ahead_kb",
    ]


def test_mapped_max_sectors_is_fixed() -> None:
    disk_attributes = attributes(queue__max_sectors_kb="1280", queue__max_hw_sectors_kb="32767")
    wish = ("max_sectors_kb", Exactly(512))
    path = rows(endpoint(kind=Kind.PATH, map="dm-0", attributes=disk_attributes), wish)[
        "max_sectors_kb"
    ]
    disk = rows(endpoint(attributes=disk_attributes), wish)["max_sectors_kb"]
    assert (path.state, disk.state) == (State.FIXED, State.DRIFT)
    below = rows(endpoint(holders=("md0",), attributes=disk_attributes), wish)["max_sectors_kb"]
    assert (below.state, below.value) == (State.FIXED, None)


def test_read_ahead_uses_full_pages() -> None:
    disk_attributes = attributes(queue__read_ahead_kb="128")
    row = rows(endpoint(attributes=disk_attributes), ("read_ahead_kb", Exactly(130)))[
        "read_ahead_kb"
    ]
    assert (row.value, row.state) == (128, State.OK)


def test_request_memory_is_summed() -> None:
    disks = [
        endpoint(target=f"sd{letter}", family="lpfc", attributes=queue(), hw_queues=4, tags=1000)
        for letter in "abc"
    ]
    planned = make.make_plan(machine(*disks), profile(DEADLINE, REQUESTS))
    assert planned.memory.added == 3 * 2048 * 4 * REQUEST_BYTES
    without = make.make_plan(machine(*disks), profile(NONE, REQUESTS))
    assert without.memory.added == 0


def test_shared_tags_cost_memory_once() -> None:
    """240 SAS disks on a 9600: 128 hardware queues, one tag set, requests allocated already."""
    luns = [
        endpoint(
            target=f"sd{number}",
            id=f"naa.{number}@0000:01:00.0",
            family="mpi3mr",
            hw_queues=128,
            tags=8000,
            attributes=queue("none [mq-deadline]", "256"),
        )
        for number in range(240)
    ]
    shared = make.make_plan(
        machine(*luns), profile(DEADLINE, REQUESTS), limits=PlanLimits(memory_share=0.05)
    )
    assert {row.value for row in shared.drift} == {2048}
    assert shared.memory.added == 0
    unshared_luns = [msgspec.structs.replace(lun, family="qla2xxx") for lun in luns]
    unshared = make.make_plan(
        machine(*unshared_luns), profile(DEADLINE, REQUESTS), limits=PlanLimits(memory_share=0.05)
    )
    with pytest.raises(UsageError, match="MiB that are allowed"):
        require_affordable(unshared)


def test_memory_total_includes_unselected_disks() -> None:
    """Naming one disk after another, or events of one disk each, add up to the same."""
    tuned = [
        endpoint(
            target=f"sd{n}",
            family="lpfc",
            attributes=queue("none [mq-deadline]", "2048"),
            hw_queues=4,
        )
        for n in range(100)
    ]
    late = endpoint(
        target="late", family="lpfc", attributes=queue("none [mq-deadline]", "256"), hw_queues=4
    )
    plan = make.make_plan(
        machine(*tuned, late),
        profile(REQUESTS),
        only={late.id},
        limits=PlanLimits(memory_share=0.03),
    )
    assert plan.memory.added == (2048 - 256) * 4 * REQUEST_BYTES
    assert plan.memory.total == 101 * 2048 * 4 * REQUEST_BYTES
    with pytest.raises(UsageError, match="MiB that are allowed"):
        require_affordable(plan)
    assert without_requests(plan).drift == ()


@given(
    scheduler=st.sampled_from(["[none] mq-deadline", "none [mq-deadline]", "none"]),
    current=st.integers(4, 2048),
    tags=st.integers(1, 10_000),
    depth=st.integers(1, 4096),
    cap=st.integers(1, 4096),
    wanted=st.integers(4, 2048),
    at_least=st.integers(1, 4096),
    switch=st.sampled_from(["none", "mq-deadline"]),
)
def test_plan_never_exceeds_kernel_limits(
    scheduler: str,
    current: int,
    tags: int,
    depth: int,
    cap: int,
    wanted: int,
    at_least: int,
    switch: str,
) -> None:
    disk = endpoint(attributes=queue(scheduler, str(current), str(depth)), tags=tags, depth_cap=cap)
    rows_by_setting = rows(
        disk,
        ("scheduler", Exactly(switch)),
        ("nr_requests", Exactly(wanted)),
        ("queue_depth", AtLeast(at_least)),
    )
    requests, queue_depth = rows_by_setting["nr_requests"], rows_by_setting["queue_depth"]
    if requests.state is State.DRIFT:
        assert isinstance(requests.value, int)
        assert requests.value <= (tags if rows_by_setting["scheduler"].value == "none" else 2048)
    if queue_depth.state is State.DRIFT:
        assert isinstance(queue_depth.value, int)
        assert depth < queue_depth.value <= cap
    for row in rows_by_setting.values():
        if row.value is not None and row.value != row.wanted:
            assert row.limit
