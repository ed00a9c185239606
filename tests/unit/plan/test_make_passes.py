"""The passes of a plan, each on its own."""

from msgspec.structs import replace

from hbatune.facts.model import Endpoint, Protocol
from hbatune.facts.targets import make_target
from hbatune.plan.make import (
    EarlierChanges,
    MatchedTarget,
    SetBefore,
    exclude_disruptive,
    exclude_reverted,
    exclude_target,
    find_earlier_changes,
    keep_decision,
    level_members,
    limit_value,
    match_rules,
    restore_value,
)
from hbatune.plan.rows import BASELINE_RULE, RevertedValue, Row, State
from hbatune.policy.match import Matcher
from hbatune.policy.profile import AtLeast, Exactly, Origin, Rule
from hbatune.settings.limits import find_scheduler, make_device
from hbatune.settings.table import SETTINGS
from hbatune.text.limit_text import Limit, LimitReason
from tests.unit.machines import attributes, endpoint, machine
from tests.unit.profiles import profile

[DEEPER] = profile(("queue_depth", AtLeast(64))).rules
[EXACT] = profile(("queue_depth", Exactly(48))).rules
RESET = LimitReason(Limit.DISRUPTS, (SETTINGS["zio"].disrupts,))


def lun(name: str = "sda", depth: str = "32") -> Endpoint:
    return endpoint(target=name, attributes=attributes(device__queue_depth=depth))


def matched(disk: Endpoint, rule: Rule = DEEPER) -> MatchedTarget:
    target = make_target(disk)
    device = make_device(disk, find_scheduler(target.attributes))
    return MatchedTarget(target, device, {rule.setting: rule})


def limited(disk: Endpoint, rule: Rule = DEEPER) -> Row:
    path = matched(disk, rule)
    return limit_value(path.target, rule, path.device, None)


def test_match_rules_prefers_site_rule() -> None:
    disk = lun()
    host = machine(disk)
    matcher = Matcher(profile(("queue_depth", AtLeast(64))))
    site_rule = replace(EXACT, origin=Origin.SITE, name="site")
    [plain] = match_rules(host, matcher, {}, {})
    [by_site] = match_rules(host, matcher, {disk.id: site_rule}, {})
    assert (plain.rules["queue_depth"].name, by_site.rules["queue_depth"].name) == (
        "rule-0",
        "site",
    )


def test_limit_value_sets_state() -> None:
    assert limited(lun()).state is State.DRIFT
    deep = limited(lun(depth="128"))
    assert (deep.state, deep.value, deep.limit) == (
        State.OK,
        128,
        LimitReason(Limit.RAISED_ONLY),
    )


def test_exclude_target_distinguishes_unread() -> None:
    target = matched(lun()).target
    unread = exclude_target(target, DEEPER, LimitReason(Limit.UNREAD_DISK, ("vpd_pg83",)))
    excluded = exclude_target(target, DEEPER, LimitReason(Limit.EXCLUDED))
    assert (unread.state, excluded.state) == (State.UNREADABLE, State.EXCLUDED)
    assert (unread.value, excluded.value, excluded.current) == (None, None, 32)


def test_exclude_reverted_compares_value() -> None:
    row = limited(lun())
    same = frozenset({RevertedValue(row.id, "queue_depth", 64)})
    different = frozenset({RevertedValue(row.id, "queue_depth", 128)})
    assert exclude_reverted(row, same).limit == LimitReason(Limit.REVERTED)
    assert exclude_reverted(row, different) == row


def test_keep_decision_until_named() -> None:
    disk = replace(lun(depth="1"), protocol=Protocol.SATA, ncq_depth=32)
    row, path = limited(disk), matched(disk)
    decided = keep_decision(row, DEEPER, path, None, EarlierChanges())
    assert (decided.state, decided.limit) == (
        State.EXCLUDED,
        LimitReason(Limit.NCQ_OFF, ("sda",)),
    )
    ours = EarlierChanges(set_by_us=lambda id, setting: True)
    local = replace(EXACT, origin=Origin.SITE)
    assert keep_decision(row, DEEPER, path, None, EarlierChanges(targets_named=True)) == row
    assert keep_decision(row, DEEPER, path, None, ours) == row
    assert keep_decision(row, local, path, None, EarlierChanges()) == row


def test_exclude_disruptive_needs_drift() -> None:
    row = replace(limited(lun()), setting="zio")
    assert exclude_disruptive(row).limit == RESET
    assert exclude_disruptive(replace(row, state=State.OK)).limit is None
    assert exclude_disruptive(limited(lun())).state is State.DRIFT


def test_restore_value_keeps_foreign_changes() -> None:
    path, depth = matched(lun()), SETTINGS["queue_depth"]
    ours = SetBefore(16, lambda value: True)
    row = restore_value(path.target, depth, ours, path.device)
    assert row is not None
    assert (row.rule, row.state, row.value) == (BASELINE_RULE, State.DRIFT, 16)
    foreign = restore_value(
        path.target, depth, replace(ours, ours=lambda value: False), path.device
    )
    assert foreign is not None
    assert (foreign.state, foreign.limit) == (
        State.EXCLUDED,
        LimitReason(Limit.CHANGED_SINCE),
    )
    assert restore_value(path.target, depth, replace(ours, before=32), path.device) is None


def test_effects_of_required_settings_stay() -> None:
    disk = lun()
    path = matched(disk, profile(("scheduler", Exactly("none"))).rules[0])
    change = SetBefore(256, lambda value: True, effect=True)
    earlier = EarlierChanges(set_before={(disk.id, "nr_requests"): change})
    assert find_earlier_changes(path, earlier, is_excluded=False) == {}
    assert find_earlier_changes(path, earlier, is_excluded=True) == {"nr_requests": change}


def test_level_members_names_deciding_path() -> None:
    disks = [lun("sda"), replace(lun("sdb"), depth_cap=40)]
    paths = [matched(replace(disk, map="dm-0")) for disk in disks]
    planned = {
        path.target.id: [limit_value(path.target, DEEPER, path.device, None)] for path in paths
    }
    levelled = level_members(paths, planned)
    assert [row.value for path_rows in levelled.values() for row in path_rows] == [40, 40]
    reason = LimitReason(Limit.PATHS_TAKE, ("sdb", 40))
    assert levelled[paths[0].target.id][0].limit == reason
