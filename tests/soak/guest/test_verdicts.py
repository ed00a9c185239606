"""Verdicts counted: a setting with itself, depths raised and cut, a service time 15 % longer.

At most one false alarm in a hundred verdicts. Where the disk's cache warms
up meanwhile, or a neighbour starts halfway, not one of twenty may be false.
"""

import subprocess
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import pytest

from hbatune.act.chain import WriteResult
from hbatune.act.executor import Key
from hbatune.act.trial import Side
from hbatune.facts.machine import gather_machine
from hbatune.operations.verify import RAMP_S
from hbatune.policy.profile import Tolerance
from hbatune.probe import run
from hbatune.probe.prove import Proving, Representative
from hbatune.probe.result import Prepare, ProbeOutcome, Subject, Workload
from hbatune.probe.selection import list_subjects
from hbatune.probe.verdict import DEFAULT_PAIRS, MIN_PAIRS
from tests.lab.guest.command import hbatune
from tests.lab.guest.kit import set_service_time
from tests.lab.guest.known import DEPTH, SERVICE_NS, deep, forget, neighbour, profile
from tests.lab.guest.values import cat, put
from tests.soak.guest.results import save_results

THEMSELVES, CUTS, SLOWER, SPOILED = 100, 20, 10, 20
KERNELS = ("6.1", "6.12")
WORKLOAD = Workload(depth=24, ramp=RAMP_S, runtime=0.5)


class Delay:
    """Switches the service time of scsi_debug, which no setting of hbatune is."""

    def __init__(self, after: int) -> None:
        self._delays = {Side.BEFORE: SERVICE_NS, Side.AFTER: after}

    def switch(self, keys: Collection[Key], side: Side) -> Mapping[Key, WriteResult]:
        set_service_time("ndelay", self._delays[side])
        return {}

    def revert(self, keys: Collection[Key]) -> Mapping[Key, WriteResult]:
        return self.switch(keys, Side.BEFORE)


class Warming:
    """A disk whose cache warms up: the first runs take up to four times as long."""

    def __init__(self) -> None:
        self._runs = 0

    def switch(self, keys: Collection[Key], side: Side) -> Mapping[Key, WriteResult]:
        set_service_time("ndelay", round(SERVICE_NS * (1 + 3 * 0.5 ** (self._runs / 2))))
        self._runs += 1
        return {}

    def revert(self, keys: Collection[Key]) -> Mapping[Key, WriteResult]:
        return {}


class Neighbour:
    """Somebody else who begins to read the disk with the ninth run."""

    def __init__(self, lun: str) -> None:
        self._lun = lun
        self._runs = 0
        self._reader: subprocess.Popen[bytes] | None = None

    def switch(self, keys: Collection[Key], side: Side) -> Mapping[Key, WriteResult]:
        self._runs += 1
        if self._runs == 9:
            self._reader = neighbour(self._lun)
        return {}

    def revert(self, keys: Collection[Key]) -> Mapping[Key, WriteResult]:
        return {}

    def end(self) -> None:
        if self._reader is not None:
            self._reader.terminate()
            self._reader.wait()


@pytest.fixture
def lun(scsi_debug: Callable[..., list[str]]) -> Iterator[str]:
    [disk] = scsi_debug(max_luns=1, delay=0, ndelay=SERVICE_NS)
    yield deep(disk)
    hbatune("rollback")
    forget("cut")


def compared(
    lun: str, after: int, times: int, pairs: int = DEFAULT_PAIRS
) -> tuple[Counter[str], list[float]]:
    """Compare two service times so many times; return the words, and the ratios of the p99."""
    subject = _subject(lun)
    words: Counter[str] = Counter()
    ratios: list[float] = []
    for _ in range(times):
        trial: Any = Delay(after)
        proof = _proving(pairs).compare(trial, Representative(subject, (), ()), (), None)
        assert proof.outcome is None, proof.outcome
        words[str(proof.verdict.word)] += 1
        ratios += [
            round(change.ratio, 4) for change in proof.verdict.changes if change.metric == "p99"
        ]
    return words, ratios


def _subject(lun: str) -> Subject:
    subjects = list_subjects(gather_machine((), deadline=10.0), {lun})
    return next(subject for subject in subjects if subject.target == lun)


def _proving(pairs: int) -> Proving:
    def measure(subject: Subject, seconds: float, prepare: Prepare) -> ProbeOutcome:
        return run.probe_subject(subject, WORKLOAD, prepare=prepare)

    seconds = WORKLOAD.runtime
    return Proving(measure, Tolerance(), 3600.0, seconds, idle=run.find_disturbance, pairs=pairs)


@pytest.mark.deadline(14_400)
@pytest.mark.parametrize(("name", "pairs"), [("", DEFAULT_PAIRS), ("_by_default", MIN_PAIRS)])
def test_identical_setting_is_rarely_distinguished(lun: str, name: str, pairs: int) -> None:
    words, ratios = compared(lun, SERVICE_NS, THEMSELVES, pairs)
    alarms = words["improved"] + words["regressed"]
    save_results(
        f"comparisons of a service time with itself, {pairs} pairs",
        name=f"verdicts_itself{name}",
        comparisons=THEMSELVES,
        words=dict(words),
        alarms=alarms,
        p99_ratios=ratios,
    )
    assert alarms <= 1, words


@pytest.mark.deadline(3600)
def test_15_percent_slowdown_is_detected(lun: str) -> None:
    words, ratios = compared(lun, SERVICE_NS * 115 // 100, SLOWER)
    save_results(
        "a service time 15 % longer",
        name="verdicts_slower",
        comparisons=SLOWER,
        words=dict(words),
        p99_ratios=ratios,
    )
    assert words["regressed"] >= 9, words


@pytest.mark.deadline(7200)
def test_depth_cut_is_reliably_reverted(lun: str) -> None:
    words: Counter[str] = Counter()
    choice = profile("cut", "queue_depth", 8)
    for _ in range(CUTS):
        done = hbatune("apply", *choice, "--verify", "--json", lun)
        proof, *_ = done.json["verdicts"]
        outcome = done.row(lun, "queue_depth")["outcome"]
        words[f"{proof['verdict']['word']}, {outcome}"] += 1
        hbatune("rollback")
        assert cat(lun, "device/queue_depth") == str(DEPTH)
    save_results(
        "a depth cut from 64 to 8", name="verdicts_cut", comparisons=CUTS, words=dict(words)
    )
    assert words["regressed, reverted"] >= 19, words


@pytest.mark.deadline(7200)
@pytest.mark.parametrize(
    ("name", "depths", "expected"),
    [("raised", (32, 128), "improved, written"), ("lowered", (128, 32), "regressed, reverted")],
)
def test_apply_distinguishes_depths_32_128(
    deep_lun: str, name: str, depths: tuple[int, int], expected: str
) -> None:
    words: Counter[str] = Counter()
    before, after = map(str, depths)
    choice = profile("cut", "queue_depth", depths[1], depth=128)
    for _ in range(CUTS):
        put(deep_lun, "device/queue_depth", before)
        done = hbatune("apply", *choice, "--json", deep_lun)
        outcome = done.row(deep_lun, "queue_depth")["outcome"]
        words[f"{done.json['verdicts'][0]['verdict']['word']}, {outcome}"] += 1
        assert done.code == (1 if outcome == "reverted" else 0)
        hbatune("rollback")
        assert cat(deep_lun, "device/queue_depth") == before
    description = f"applies without --verify of a depth of {after} in place of {before}"
    save_results(description, name=f"verdicts_{name}", comparisons=CUTS, words=dict(words))
    assert words[expected] >= 19, words


@pytest.fixture
def deep_lun(scsi_debug: Callable[..., list[str]]) -> Iterator[str]:
    # Twice the time, for emulated CPUs to keep twice as many in flight.
    [disk] = scsi_debug(max_luns=1, max_queue=192, delay=0, ndelay=2 * SERVICE_NS)
    yield disk
    hbatune("rollback")
    forget("cut")


@pytest.mark.deadline(7200)
def test_warming_cache_has_no_effect(lun: str) -> None:
    words = _spoiled(lun, Warming)
    description = "a setting with itself while a cache warms up"
    save_results(description, name="verdicts_warming", comparisons=SPOILED, words=dict(words))
    assert not words["improved"] + words["regressed"], words


@pytest.mark.deadline(7200)
def test_midway_neighbour_has_no_effect(lun: str) -> None:
    words = _spoiled(lun, lambda: Neighbour(lun))
    description = "a setting with itself, with a neighbour from halfway"
    save_results(description, name="verdicts_beside", comparisons=SPOILED, words=dict(words))
    assert not words["improved"] + words["regressed"], words


def _spoiled(lun: str, trial: Callable[[], Warming | Neighbour]) -> Counter[str]:
    """Compare what changes nothing while something else does; return the words."""
    words: Counter[str] = Counter()
    for _ in range(SPOILED):
        switching: Any = trial()
        proof = _proving(MIN_PAIRS).compare(
            switching, Representative(_subject(lun), (), ()), (), None
        )
        if isinstance(switching, Neighbour):
            switching.end()
        words[str(proof.verdict.word)] += 1
    return words
