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
    module_parameters: dict[str, Attribute | Missing] = {
        name: Attribute(text, False) for name, text in parameters.items()
    }
    host = machine(*(endpoints or (DATA,)), adapters=adapters)
    return replace(host, modules=(Module("mpt3sas", module_parameters),))


def row(
    host: Machine,
    effect: Effect,
    rendered: RenderedOptions | None = None,
    option: str = "max_queue_depth",
) -> Row:
    [planned] = plan_options(host, profile(rule(option, effect)), rendered or {})
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
    planned_row = row(loaded(max_queue_depth=text), effect, rendered)
    assert (planned_row.state, planned_row.value) == (state, value)
    assert (planned_row.target, planned_row.setting) == ("mpt3sas", "mpt3sas.max_queue_depth")
    assert planned_row.value == planned_row.wanted or planned_row.limit


@pytest.mark.parametrize(
    ("missing", "state"),
    [
        (Missing(Reason.ABSENT), State.ABSENT),
        (Missing(Reason.UNREADABLE, 13), State.UNREADABLE),
    ],
)
def test_unreadable_option_is_not_planned(missing: Missing, state: State) -> None:
    host = replace(machine(), modules=(Module("mpt3sas", {"max_queue_depth": missing}),))
    assert row(host, Exactly(-1)).state is state
    assert row(machine(), Exactly(-1)).state is State.ABSENT


@pytest.mark.parametrize(("source", "rows"), [("K-threaded-isr-poll", 0), ("site: ours", 1)])
def test_option_of_newer_modules_needs_module(source: str, rows: int) -> None:
    """A site's rule is not dropped: it has a row that says that the option is absent."""
    wanted = replace(rule("threaded_isr_poll", Exactly(0), "mpi3mr"), source=source)
    old = machine(adapters=(adapter(family="mpi3mr"),))
    assert len(plan_options(old, profile(wanted), {})) == rows
    parameters: dict[str, Attribute | Missing] = {"threaded_isr_poll": Attribute("Y", False)}
    new = replace(old, modules=(Module("mpi3mr", parameters),))
    [planned] = plan_options(new, profile(wanted), {})
    assert (planned.row.state, planned.row.current, planned.row.value) == (State.DRIFT, 1, 0)


def test_module_without_adapter_is_skipped() -> None:
    host = loaded(max_queue_depth="1000")
    assert not plan_options(host, profile(rule("msix_vectors", Exactly(0), "megaraid_sas")), {})


def test_last_option_rule_wins() -> None:
    rules = rule("max_queue_depth", Exactly(100)), rule("max_queue_depth", Exactly(200))
    [planned] = plan_options(loaded(max_queue_depth="1"), profile(*rules), {})
    assert planned.row.value == 200


def test_shared_option_has_single_row() -> None:
    two = (adapter(), adapter(target="0000:02:00.0"))
    shared = row(loaded(adapters=two, max_queue_depth="1"), Exactly(-1))
    assert shared.adapter is None
    single = row(loaded(max_queue_depth="1"), Exactly(-1))
    assert single.adapter == "0000:01:00.0"


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
    host = loaded(ROOT, max_queue_depth="1000")
    options = profile(rule("max_queue_depth", Exactly(-1)))
    [planned] = plan_options(host, options, {}, named=names)
    assert planned.row.state is state
    assert find_root_modules(host) == {"mpt3sas"}
    if state is State.EXCLUDED:
        assert planned.row.value is None
        assert "0000:01:00.0" in describe_limit(planned.row.limit)


def test_sibling_adapter_cannot_release_root() -> None:
    two = (adapter(), adapter(target="0000:02:00.0", hosts=()))
    host = loaded(ROOT, adapters=two, max_queue_depth="1000")
    options = profile(rule("max_queue_depth", Exactly(-1)))
    [planned] = plan_options(host, options, {}, named=("0000:02:00.0",))
    assert planned.row.state is State.EXCLUDED


@pytest.mark.parametrize("name", ["0000:01:00.0", "sda", "host0"])
def test_excluded_target_blocks_module_options(name: str) -> None:
    options = profile(rule("max_queue_depth", Exactly(-1)))
    host = loaded(max_queue_depth="1000")
    [planned] = plan_options(host, options, {}, named=("0000:01:00.0",), excluded=(name,))
    assert planned.row.state is State.EXCLUDED


def test_file_preserves_options_in_use() -> None:
    rules = (
        rule("max_queue_depth", Exactly(-1)),
        rule("perf_mode", Exactly(2)),
        rule("max_msix_vectors", Exactly(-1)),
    )
    host = loaded(max_queue_depth="1000", perf_mode="2", max_msix_vectors="-1")
    rendered = {("mpt3sas", "perf_mode"): "2"}
    planned = plan_options(host, profile(*rules), rendered)
    option_lines = make_option_lines(planned, rendered)
    assert {(line.option, line.effect.value) for line in option_lines} == {
        ("max_queue_depth", -1),
        ("perf_mode", "2"),
    }
    elsewhere = plan_options(host, profile(*rules), rendered, only={"0000:09:00.0"})
    assert [line.option for line in make_option_lines(elsewhere, rendered)] == ["perf_mode"]
    assert not any(option_row.asked for option_row in elsewhere)


def test_unrequested_used_option_leaves_file() -> None:
    rendered = {("mpt3sas", "perf_mode"): "2"}
    host = loaded(perf_mode="2")
    assert not make_option_lines(plan_options(host, profile(), rendered), rendered)


def outcome(planned_row: Row, current_texts: dict[str, str], errno: int | None = None) -> Any:
    rendered = {("mpt3sas", name): text for name, text in current_texts.items()}
    [done] = set_outcomes([planned_row], rendered, errno)
    return done.state, done.outcome, done.errno


def test_pending_state_requires_file_entry() -> None:
    drift = row(loaded(max_queue_depth="1000"), Exactly(-1))
    assert outcome(drift, {"max_queue_depth": "-1"}) == (State.PENDING, Outcome.WRITTEN, None)
    assert outcome(drift, {}) == (State.DRIFT, Outcome.IGNORED, None)
    assert outcome(drift, {}, 30) == (State.DRIFT, Outcome.REFUSED, 30)
    fine = row(loaded(max_queue_depth="-1"), Exactly(-1))
    assert outcome(fine, {}) == (State.OK, Outcome.KEPT, None)
