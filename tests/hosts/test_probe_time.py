"""What measuring costs on a large server, as hbatune says ahead."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from hbatune.act.journal import Journal
from hbatune.act.rollback_record import RollbackRecords
from hbatune.cli.command_context import make_context
from hbatune.facts.model import Machine
from hbatune.facts.targets import choose_targets
from hbatune.operations.context import ComparisonRequest
from hbatune.operations.situation import Situation
from hbatune.operations.verify import Verification
from hbatune.policy.config import Config, ProbeConfig
from hbatune.policy.library import Library, load_profile
from hbatune.probe import run
from hbatune.probe.selection import choose_representatives
from hbatune.settings.table import list_attributes
from hbatune.shipped import find_shipped
from tests.hosts import machines
from tests.hosts.namespace import gather_in
from tests.hosts.tree import Described

LUNS, ADAPTERS = 64, 4


@pytest.fixture
def server(built: Callable[[Described], Path]) -> Machine:
    """Four adapters with sixteen LUNs each, half of them spinning."""
    return gather_in(built(machines.build_many_luns(LUNS, ADAPTERS)), list_attributes())


@pytest.fixture
def probed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine is of paper: nobody asks how busy its disks are."""
    monkeypatch.setattr(
        run,
        "choose_subjects",
        lambda machine, targets, *, shared: choose_representatives(machine, targets),
    )


def situation(machine: Machine, config: Config | None = None) -> Situation:
    library = Library(find_shipped("rules"), site=Path("/nonexistent"))
    profile = load_profile("oltp", library)
    configuration = config or Config()
    return Situation(
        configuration,
        profile,
        machine,
        choose_targets(machine, ()),
        Journal(machine.boot_id),
        RollbackRecords(),
        (),
        {},
        configuration.site,
    )


def test_each_kind_has_half_a_minute(server: Machine, probed: None) -> None:
    server_situation = situation(server)
    plan = server_situation.plan()
    assert len({row.target for row in plan.drift}) == LUNS
    verifying = Verification(make_context(), server_situation, plan, ComparisonRequest())
    assert len(verifying.budget.subjects) == 8, "spinning disks and others behind four adapters"
    assert 180 < verifying.budget.seconds <= 240
    assert not verifying.budget.left_out


def test_one_kind_takes_half_a_minute(built: Callable[[Described], Path], probed: None) -> None:
    machine = gather_in(built(machines.build_many_luns(1, 1)), list_attributes())
    one_situation = situation(machine)
    request = ComparisonRequest()
    verifying = Verification(make_context(), one_situation, one_situation.plan(), request)
    assert 27 < verifying.budget.seconds <= 30, "the load and the bursts"
    [target] = verifying._workloads
    assert verifying._bursts[target].issued == 128
    assert verifying._limit == math.ceil(2 * verifying.budget.seconds), "the confirmation included"


def test_verdicts_respect_time_limit(server: Machine, probed: None) -> None:
    limit = 120
    server_situation = situation(server, Config(probe=ProbeConfig(verify_limit=limit)))
    request = ComparisonRequest(thorough=True)
    verifying = Verification(make_context(), server_situation, server_situation.plan(), request)
    assert len(verifying.budget.left_out) > 0, "not every kind fits, and that is said"
    assert verifying.budget.seconds <= limit
