"""What measuring costs on a large server, as hbatune says ahead."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from hbatune.act.hands_off import HandsOff
from hbatune.act.journal import Journal
from hbatune.facts.model import Machine
from hbatune.operations.probing import Probing
from hbatune.operations.situation import Situation
from hbatune.operations.verifying import Verifying
from hbatune.policy.config import Config, ProbeConfig
from hbatune.policy.load import Library, load_profile
from hbatune.probe import run
from hbatune.probe.model import Outcome, Skip, Skipped, Subject, Workload
from hbatune.probe.select import representatives
from hbatune.settings.table import attributes
from hbatune.shipped import shipped
from tests.hosts import machines
from tests.hosts.namespace import gather_in
from tests.hosts.tree import Described

LUNS, ADAPTERS = 64, 4


@pytest.fixture
def server(built: Callable[[Described], Path]) -> Machine:
    """Four adapters with sixteen LUNs each, half of them spinning."""
    return gather_in(built(machines.many(LUNS, ADAPTERS)), attributes())


@pytest.fixture
def probed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float]]:
    """What was probed and for how long, by nobody: the machine is of paper."""
    seen: list[tuple[str, float]] = []

    def probe(
        subjects: list[Subject], workload: Workload, *_: object, **__: object
    ) -> list[Outcome]:
        seen.extend((each.target, workload.seconds) for each in subjects)
        return [Skipped(each.target, Skip.BUSY) for each in subjects]

    monkeypatch.setattr(run, "probe", probe)
    monkeypatch.setattr(
        run, "choose", lambda machine, targets, *, shared: representatives(machine, targets)
    )
    return seen


def situation(it: Machine, config: Config | None = None) -> Situation:
    library = Library(shipped("rules"), site=Path("/nonexistent"))
    profile = load_profile("oltp", library)
    known = config or Config()
    return Situation(
        known,
        profile,
        it,
        it.endpoints,
        None,
        Journal(it.boot_id),
        HandsOff(),
        (),
        {},
        known.site,
    )


def seconds_said(said: str) -> float:
    return float(said.partition("takes about ")[2].partition(" s")[0])


def test_the_default_probe_takes_a_minute_at_most_samples_and_says_so_ahead(
    server: Machine, probed: list[tuple[str, float]], capsys: pytest.CaptureFixture[str]
) -> None:
    here = situation(server)
    plan = here.plan()
    assert len({row.target for row in plan.drift}) == LUNS
    Probing(here, plan, declined=False, shared=False).before()
    assert seconds_said(capsys.readouterr().err) <= 60
    adapters = {each.target: each.adapter for each in server.endpoints}
    per_adapter = Counter(adapters[target] for target, _ in probed)
    assert per_adapter == dict.fromkeys(set(adapters.values()), 2), "one spinning, one not"
    assert 2 * sum(seconds for _, seconds in probed) < 60


def test_verdicts_keep_to_their_own_limit(
    server: Machine, probed: list[tuple[str, float]], capsys: pytest.CaptureFixture[str]
) -> None:
    limit = 120
    here = situation(server, Config(probe=ProbeConfig(verify_limit=limit)))
    verifying = Verifying(here, here.plan(), shared=False)
    assert len(verifying.left_out) > 0, "not every kind fits, and that is said"
    assert verifying.seconds <= limit
