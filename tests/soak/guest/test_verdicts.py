"""Verdicts counted: a setting with itself, a depth cut, and a service time 15 % longer.

Designed for one false alarm in a hundred verdicts; five are a finding.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping

import pytest

from hbatune.act.chain import WriteResult
from hbatune.act.executor import Key
from hbatune.act.trial import Side
from hbatune.facts.machine import gather
from hbatune.operations.verify import RAMP
from hbatune.policy.model import Tolerance
from hbatune.probe import run
from hbatune.probe.model import Subject, Workload
from hbatune.probe.prove import Proving, Representative
from hbatune.probe.selection import subjects_of
from tests.lab.guest.command import hbatune
from tests.lab.guest.known import DEPTH, NDELAY, SERVICE_NS, deep, forget, profile
from tests.lab.guest.values import cat
from tests.soak.guest.results import kept

THEMSELVES, CUTS, SLOWER = 100, 20, 10
WORKLOAD = Workload(depth=24, ramp=RAMP, runtime=0.5)


class Delay:
    """Switches the service time of scsi_debug, which no setting of hbatune is."""

    def __init__(self, after: int) -> None:
        self._delays = {Side.BEFORE: SERVICE_NS, Side.AFTER: after}

    def switch(self, keys: Collection[Key], side: Side) -> Mapping[Key, WriteResult]:
        NDELAY.write_text(str(self._delays[side]))
        return {}

    def revert(self, keys: Collection[Key]) -> Mapping[Key, WriteResult]:
        return self.switch(keys, Side.BEFORE)


@pytest.fixture
def lun(scsi_debug: Callable[..., list[str]]) -> Iterator[str]:
    [disk] = scsi_debug(max_luns=1, delay=0, ndelay=SERVICE_NS)
    yield deep(disk)
    hbatune("rollback")
    forget("cut")


def compared(lun: str, after: int, times: int) -> tuple[Counter[str], list[float]]:
    """Compare two service times so many times; return the words, and the ratios of the p99."""
    [subject] = [
        each for each in subjects_of(gather((), deadline=10.0), {lun}) if each.target == lun
    ]
    words: Counter[str] = Counter()
    ratios: list[float] = []
    for _ in range(times):
        proof = _proving().compare(Delay(after), Representative(subject, (), ()), (), None)
        assert proof.outcome is None, proof.outcome
        words[str(proof.verdict.word)] += 1
        ratios += [round(each.ratio, 4) for each in proof.verdict.changes if each.metric == "p99"]
    return words, ratios


def _proving() -> Proving:
    def measure(subject: Subject):  # type: ignore[no-untyped-def]
        return run.probe([subject], WORKLOAD)[0]

    return Proving(measure, Tolerance(), 3600.0, 2 * run.estimate_seconds(1, WORKLOAD))


@pytest.mark.deadline(14_400)
def test_a_setting_with_itself_is_hardly_ever_told_from_itself(lun: str) -> None:
    words, ratios = compared(lun, SERVICE_NS, THEMSELVES)
    alarms = words["improved"] + words["regressed"]
    kept(
        "comparisons of a service time with itself",
        name="verdicts_itself",
        comparisons=THEMSELVES,
        words=dict(words),
        alarms=alarms,
        p99_ratios=ratios,
    )
    assert alarms <= 5, words


@pytest.mark.deadline(3600)
def test_fifteen_percent_of_service_time_are_told(lun: str) -> None:
    words, ratios = compared(lun, SERVICE_NS * 115 // 100, SLOWER)
    kept(
        "a service time 15 % longer",
        name="verdicts_slower",
        comparisons=SLOWER,
        words=dict(words),
        p99_ratios=ratios,
    )
    assert words["regressed"] >= 9, words


@pytest.mark.deadline(7200)
def test_a_depth_cut_is_reverted_nearly_always(lun: str) -> None:
    words: Counter[str] = Counter()
    choice = profile("cut", "queue_depth", 8)
    for _ in range(CUTS):
        done = hbatune("apply", *choice, "--verify", "--json", lun)
        [proof] = done.json["verdicts"]
        outcome = done.row(lun, "queue_depth")["outcome"]
        words[f"{proof['verdict']['word']}, {outcome}"] += 1
        hbatune("rollback")
        assert cat(lun, "device/queue_depth") == str(DEPTH)
    kept("a depth cut from 64 to 8", name="verdicts_cut", comparisons=CUTS, words=dict(words))
    assert words["regressed, reverted"] >= 19, words
