"""Module options: drift, pending, in use; the root disk's adapter only where it is named."""

from typing import Any

import pytest
from msgspec.structs import replace

from hbatune.facts.model import Adapter, Attribute, Endpoint, Machine, Missing, Module, Reason
from hbatune.plan.module_options import (
    RenderedOptions,
    find_root_modules,
    make_option_lines,
    plan_options,
    set_outcomes,
)
from hbatune.plan.rows import Outcome, Row, State
from hbatune.policy.profile import AtLeast, AtMost, Exactly, OptionRule, Origin, ProbeSpec, Profile
from hbatune.text.limit_text import describe_limit
from tests.unit.machines import adapter, endpoint, machine

ROOT = endpoint(mounts=("/",))
DATA = endpoint(mounts=("/srv",))
Effect = Exactly | AtLeast | AtMost


def rule(option: str, effect: Effect, module: str = "mpt3sas") -> OptionRule:
    return OptionRule(f"{module}-{option}", module, option, effect, "because", "D4-3", "x.toml")


def profile(*rules: OptionRule) -> Profile:
    return Profile("test", "A test", Origin.SITE, (), (), ProbeSpec(), ("x.toml",), rules)


def loaded(
    *endpoints: Endpoint, adapters: tuple[Adapter, ...] | None = None, **parameters: str
) -> Machine:
    found: dict[str, Attribute | Missing] = {
        name: Attribute(text, False) for name, text in parameters.items()
    }
    it = machine(*(endpoints or (DATA,)), adapters=adapters)
    return replace(it, modules=(Module("mpt3sas", found),))


def row(
    it: Machine,
    effect: Effect,
    rendered: RenderedOptions | None = None,
    option: str = "max_queue_depth",
) -> Row:
    [planned] = plan_options(it, profile(rule(option, effect)), rendered or {})
    return planned.row


@pytest.mark.parametrize(
    ("text", "effect", "written_down", "state", "value"),
    [
        ("1000", Exactly(-1), None, State.DRIFT, -1),
        ("1000", Exactly(-1), "-1", State.PENDING, -1),
        ("1000", Exactly(-1), "500", State.DRIFT, -1),
        ("-1", Exactly(-1), None, State.OK, -1),
        ("-1", Exactly(-1), "-1", State.OK, -1),
        ("1000", AtLeast(9000), None, State.DRIFT, 9000),
        ("9500", AtLeast(9000), None, State.OK, 9500),
        # -1 is by which the driver takes all that the firmware offers
        ("-1", AtLeast(9000), None, State.OK, -1),
        ("9500", AtMost(9000), None, State.DRIFT, 9000),
        ("-1", AtMost(9000), None, State.OK, -1),
        ("Y", AtMost(0), None, State.DRIFT, 0),
        ("N", AtMost(0), None, State.OK, 0),
        ("global", AtLeast(1), None, State.DRIFT, 1),
    ],
)
def test_unused_unwritten_option_is_drift(
    text: str, effect: Effect, written_down: str | None, state: State, value: int
) -> None:
    rendered = {("mpt3sas", "max_queue_depth"): written_down} if written_down else {}
    found = row(loaded(max_queue_depth=text), effect, rendered)
    assert (found.state, found.value) == (state, value)
    assert (found.target, found.setting) == ("mpt3sas", "mpt3sas.max_queue_depth")
    assert found.value == found.wanted or found.limit


@pytest.mark.parametrize(
    ("missing", "state"),
    [
        (Missing(Reason.ABSENT), State.ABSENT),
        (Missing(Reason.UNREADABLE, 13), State.UNREADABLE),
    ],
)
def test_unreadable_option_is_not_planned(missing: Missing, state: State) -> None:
    it = replace(machine(), modules=(Module("mpt3sas", {"max_queue_depth": missing}),))
    assert row(it, Exactly(-1)).state is state
    assert row(machine(), Exactly(-1)).state is State.ABSENT


def test_module_without_adapter_is_skipped() -> None:
    it = loaded(max_queue_depth="1000")
    assert not plan_options(it, profile(rule("msix_vectors", Exactly(0), "megaraid_sas")), {})


def test_last_option_rule_wins() -> None:
    rules = rule("max_queue_depth", Exactly(100)), rule("max_queue_depth", Exactly(200))
    [planned] = plan_options(loaded(max_queue_depth="1"), profile(*rules), {})
    assert planned.row.value == 200


def test_shared_option_has_single_row() -> None:
    two = (adapter(), adapter(target="0000:02:00.0"))
    found = row(loaded(adapters=two, max_queue_depth="1"), Exactly(-1))
    assert found.adapter is None
    one = row(loaded(max_queue_depth="1"), Exactly(-1))
    assert one.adapter == "0000:01:00.0"


@pytest.mark.parametrize(
    ("names", "state"),
    [
        ((), State.EXCLUDED),
        (("sda",), State.EXCLUDED),  # the disk is not the adapter
        (("0000:01:00.0",), State.DRIFT),
        (("host0",), State.DRIFT),
    ],
)
def test_root_adapter_option_needs_naming(names: tuple[str, ...], state: State) -> None:
    it = loaded(ROOT, max_queue_depth="1000")
    options = profile(rule("max_queue_depth", Exactly(-1)))
    [planned] = plan_options(it, options, {}, named=names)
    assert planned.row.state is state
    assert find_root_modules(it) == {"mpt3sas"}
    if state is State.EXCLUDED:
        assert planned.row.value is None
        assert "0000:01:00.0" in describe_limit(planned.row.limit)


def test_sibling_adapter_cannot_release_root() -> None:
    two = (adapter(), adapter(target="0000:02:00.0", hosts=()))
    it = loaded(ROOT, adapters=two, max_queue_depth="1000")
    options = profile(rule("max_queue_depth", Exactly(-1)))
    [planned] = plan_options(it, options, {}, named=("0000:02:00.0",))
    assert planned.row.state is State.EXCLUDED


@pytest.mark.parametrize("name", ["0000:01:00.0", "sda", "host0"])
def test_excluded_target_blocks_module_options(name: str) -> None:
    options = profile(rule("max_queue_depth", Exactly(-1)))
    it = loaded(max_queue_depth="1000")
    [planned] = plan_options(it, options, {}, named=("0000:01:00.0",), excluded=(name,))
    assert planned.row.state is State.EXCLUDED


def test_file_preserves_options_in_use() -> None:
    rules = (
        rule("max_queue_depth", Exactly(-1)),
        rule("perf_mode", Exactly(2)),
        rule("max_msix_vectors", Exactly(-1)),
    )
    it = loaded(max_queue_depth="1000", perf_mode="2", max_msix_vectors="-1")
    rendered = {("mpt3sas", "perf_mode"): "2"}
    planned = plan_options(it, profile(*rules), rendered)
    kept = {(line.option, line.value) for line in make_option_lines(planned, rendered)}
    assert kept == {("max_queue_depth", -1), ("perf_mode", "2")}
    elsewhere = plan_options(it, profile(*rules), rendered, only={"0000:09:00.0"})
    assert [line.option for line in make_option_lines(elsewhere, rendered)] == ["perf_mode"]
    assert not any(each.asked for each in elsewhere)


def test_unrequested_used_option_leaves_file() -> None:
    rendered = {("mpt3sas", "perf_mode"): "2"}
    it = loaded(perf_mode="2")
    assert not make_option_lines(plan_options(it, profile(), rendered), rendered)


def outcome(found: Row, now: dict[str, str], errno: int | None = None) -> Any:
    rendered = {("mpt3sas", name): text for name, text in now.items()}
    [done] = set_outcomes([found], rendered, errno)
    return done.state, done.outcome, done.errno


def test_pending_state_requires_file_entry() -> None:
    drift = row(loaded(max_queue_depth="1000"), Exactly(-1))
    assert outcome(drift, {"max_queue_depth": "-1"}) == (State.PENDING, Outcome.WRITTEN, None)
    assert outcome(drift, {}) == (State.DRIFT, Outcome.IGNORED, None)
    assert outcome(drift, {}, 30) == (State.DRIFT, Outcome.REFUSED, 30)
    fine = row(loaded(max_queue_depth="-1"), Exactly(-1))
    assert outcome(fine, {}) == (State.OK, Outcome.KEPT, None)
