"""Options that a loaded module does not show, and depths that only an option sets."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from hbatune.facts.families import families
from hbatune.facts.model import Attribute, Machine, Role
from hbatune.plan.module_options import RenderedOptions, plan_options
from hbatune.plan.rows import Row, State
from hbatune.policy.library import Library, load_profile
from hbatune.policy.profile import AtLeast, Profile
from hbatune.shipped import find_shipped
from hbatune.text.limit_text import describe_limit
from tests.hosts.conftest import Surveyed
from tests.hosts.parts import real_parameters
from tests.hosts.wished_profiles import wishes

Survey = Callable[[str], Surveyed]


def test_family_options_match_module() -> None:
    for family in families():
        for option in family.options:
            mode, _ = real_parameters(family.name, [option.name])[option.name]
            assert option.shown is bool(mode), option.name


def row(machine: Machine, profile: Profile, rendered: RenderedOptions | None = None) -> Row:
    [planned] = plan_options(machine, profile, rendered or {})
    return planned.row


def test_ipr_vector_option_needs_a_witness(surveyed: Survey, tmp_path: Path) -> None:
    described = surveyed("ipr")
    folder = described.root / "sys" / "module" / "ipr" / "parameters"
    assert "number_of_msix" not in os.listdir(folder)
    oltp = load_profile("oltp", Library(find_shipped("rules"), site=tmp_path))
    vector_row = row(described.machine, oltp)
    assert (vector_row.setting, vector_row.state, vector_row.current) == (
        "ipr.number_of_msix",
        State.OK,
        16,
    )
    assert "does not report the current value; counted in msi_irqs" in describe_limit(
        vector_row.limit
    )
    one_vector = replace(described.machine, vectors=described.machine.vectors[:1])
    lone = row(one_vector, oltp)
    assert (lone.state, lone.current, lone.value) == (State.DRIFT, 1, 15)
    # Loaded before hbatune wrote its file.
    later = row(one_vector, oltp, {("ipr", "number_of_msix"): "15"})
    assert (later.state, later.current) == (State.PENDING, 1)


def test_ipr_without_witness_is_never_ok(surveyed: Survey, tmp_path: Path) -> None:
    oltp = load_profile("oltp", Library(find_shipped("rules"), site=tmp_path))
    described = surveyed("ipr").machine
    line = replace(described.vectors[0], role=Role.LINE)
    for vectors in ((), (line,)):
        blind = replace(described, vectors=vectors)
        vector_row = row(blind, oltp)
        assert (vector_row.state, vector_row.value) == (State.UNREADABLE, None)
        # Another number that hbatune wrote down was wanted once, and may still be in use.
        fewer = row(blind, oltp, {("ipr", "number_of_msix"): "4"})
        assert (fewer.state, fewer.value) == (State.DRIFT, 15)
        down = row(blind, oltp, {("ipr", "number_of_msix"): "15"})
        assert down.state is State.PENDING


def test_symbios_depth_uses_option(surveyed: Survey) -> None:
    machine = surveyed("sym53c8xx").machine
    wish = wishes("queue_depth", AtLeast(200))
    depth_row = row(machine, wish)
    # 64 is all that the driver takes, and the LUNs show the 16 that they have.
    assert (depth_row.setting, depth_row.state) == ("sym53c8xx.cmd_per_lun", State.DRIFT)
    assert (depth_row.current, depth_row.value) == (16, 64)
    assert row(machine, wish, {("sym53c8xx", "cmd_per_lun"): "64"}).state is State.PENDING
    deep = row(_deep(machine, 64), wish, {("sym53c8xx", "cmd_per_lun"): "64"})
    assert (deep.state, deep.value) == (State.OK, 64)
    assert row(machine, wishes("queue_depth", AtLeast(4))).state is State.OK


@pytest.mark.parametrize(
    ("loaded_with", "value"),
    [
        ("(null)", "global_tag_depth:32"),
        ("verbose,seltime:1", "verbose,seltime:1,global_tag_depth:32"),
        ("global_tag_depth:16.extended", "extended,global_tag_depth:32"),
    ],
)
def test_adaptec_depth_preserves_options(surveyed: Survey, loaded_with: str, value: str) -> None:
    machine = _loaded(surveyed("aic7xxx").machine, loaded_with)
    wish = wishes("queue_depth", AtLeast(32))
    depth_row = row(machine, wish)
    assert (depth_row.setting, depth_row.state, depth_row.value) == (
        "aic7xxx.aic7xxx",
        State.DRIFT,
        value,
    )
    after = row(_deep(_loaded(machine, value), 32), wish)
    assert (after.state, after.value) == (State.OK, value)


def test_deep_adaptec_is_unchanged(surveyed: Survey) -> None:
    machine = surveyed("aic7xxx").machine
    assert not plan_options(machine, wishes("queue_depth", AtLeast(4)), {})
    by_drive = _loaded(machine, "tag_info:{{8,0,8}}")
    depth_row = row(by_drive, wishes("queue_depth", AtLeast(32)))
    assert (depth_row.state, depth_row.value) == (State.EXCLUDED, None)
    assert "a separate depth for each drive" in describe_limit(depth_row.limit)


def _deep(machine: Machine, depth: int) -> Machine:
    """Return the machine with this depth of each LUN."""
    deep = {"device/queue_depth": Attribute(str(depth), False)}
    endpoints = tuple(
        replace(endpoint, attributes=endpoint.attributes | deep) for endpoint in machine.endpoints
    )
    return replace(machine, endpoints=endpoints)


def _loaded(machine: Machine, text: str) -> Machine:
    """Return the machine with this text as its only module's only option."""
    [module] = machine.modules
    [name] = module.parameters
    return replace(machine, modules=(replace(module, parameters={name: Attribute(text, False)}),))
