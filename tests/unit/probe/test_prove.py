"""What is put back and what stays, with a fake probe that knows what each setting costs."""

from collections.abc import Collection, Mapping
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from hbatune.act.chain import WriteResult
from hbatune.act.executor import Key
from hbatune.act.trial import Side
from hbatune.facts.model import Medium
from hbatune.plan.rows import Outcome as WriteOutcome
from hbatune.policy.profile import Tolerance
from hbatune.probe.prove import (
    MAX_LOST_PAIRS,
    Proving,
    Representative,
    make_representatives,
)
from hbatune.probe.result import (
    Failed,
    Failure,
    Prepare,
    ProbeOutcome,
    ProbeResult,
    Skip,
    Skipped,
    Subject,
    Workload,
)
from hbatune.probe.verdict import DEFAULT_PAIRS, Conclusion
from tests.unit.machines import adapter, endpoint
from tests.unit.noisy_disks import Noise, NoisyDisk
from tests.unit.probe.applied_rows import row


def disk(target: str, **overrides: object) -> Subject:
    return Subject(endpoint(target=target, id=f"id-{target}", **overrides), adapters=(adapter(),))


class FakeTrial:
    """Knows which side each setting is at; ``stays`` will not be switched."""

    def __init__(self, stays: Collection[Key] = ()) -> None:
        self.at: dict[Key, Side] = {}
        self.switches = 0
        self._stays = stays

    def switch(self, keys: Collection[Key], side: Side) -> Mapping[Key, WriteResult]:
        self.switches += 1
        stayed = {
            key: WriteResult(key[1], WriteOutcome.CONFLICT) for key in keys if key in self._stays
        }
        self.at |= {key: side for key in keys if key not in stayed}
        return stayed

    def revert(self, keys: Collection[Key]) -> Mapping[Key, WriteResult]:
        return self.switch(keys, Side.BEFORE)


class Bench:
    """A machine on which each setting makes an I/O so many times as long once it is set."""

    def __init__(self, cost: Mapping[str, float], *, fails: Collection[int] = ()) -> None:
        self.trial: Any = FakeTrial()
        self.runs = 0
        self.seconds = 0.0
        self.cost = cost
        self._fails = fails
        self._disk = NoisyDisk(Noise(0.01), 1)

    def measure(self, subject: Subject, seconds: float, prepare: Prepare) -> ProbeOutcome:
        refusal = prepare()
        if refusal is not None:
            return refusal
        self.runs += 1
        self.seconds += 2.0
        if self.runs in self._fails:
            return Failed(subject.target, Failure.IO, errno=5)
        slower = 1.0
        for setting, cost in self.cost.items():
            if self.trial.at.get(("id-sda", setting), Side.AFTER) is Side.AFTER:
                slower *= cost
        figures = self._disk.run(slower)
        return ProbeResult(subject.target, subject.endpoint.id, Workload(), figures, "3.33", ())

    def proving(self, limit: float = 600.0) -> Proving:
        return Proving(
            self.measure,
            Tolerance(),
            limit,
            1.0,
            overhead=1.0,
            shortest=1.0,
            random=Random(1),
            clock=lambda: self.seconds,
        )


def part(*settings: str) -> Representative:
    own_rows = tuple(row(setting) for setting in settings)
    second_rows = tuple(row(setting, "sdb") for setting in settings)
    return Representative(disk("sda"), own_rows, (*own_rows, *second_rows))


def test_improvement_stays_applied() -> None:
    bench = Bench({"queue_depth": 0.5})
    [proof], back = bench.proving().prove(bench.trial, part("queue_depth"))
    assert (proof.verdict.word, back) == (Conclusion.IMPROVED, [])
    assert bench.runs == 2 * DEFAULT_PAIRS
    assert set(bench.trial.at.values()) == {Side.AFTER}


def test_regression_reverts_all_disks() -> None:
    bench = Bench({"queue_depth": 2.0})
    [proof, second], back = bench.proving().prove(bench.trial, part("queue_depth"))
    assert proof.verdict.word is Conclusion.REGRESSED
    assert (second.verdict.word, second.again) == (Conclusion.REGRESSED, True)
    assert [(change.target, change.setting) for change in back] == [
        ("sda", "queue_depth"),
        ("sdb", "queue_depth"),
    ]


def test_unconfirmed_regression_stays_applied() -> None:
    bench = Bench({"queue_depth": 2.0})
    proving = bench.proving()
    cost = bench.measure

    def passing(subject: Subject, seconds: float, prepare: Prepare) -> ProbeOutcome:
        # Whatever it was, it is over when the first comparison is.
        bench.cost = {"queue_depth": 2.0} if bench.runs < 2 * DEFAULT_PAIRS else {}
        return cost(subject, seconds, prepare)

    proving.measure = passing
    [proof, second], back = proving.prove(bench.trial, part("queue_depth"))
    assert proof.verdict.beyond
    assert (second.verdict.beyond, back) == ((), [])


def test_only_guilty_group_is_reverted() -> None:
    bench = Bench({"queue_depth": 3.0, "scheduler": 0.8})
    proofs, back = bench.proving().prove(
        bench.trial, part("scheduler", "nr_requests", "queue_depth")
    )
    assert [(proof.group, proof.verdict.word) for proof in proofs] == [
        (None, Conclusion.REGRESSED),
        ("queue", Conclusion.IMPROVED),
        ("depth", Conclusion.REGRESSED),
    ]
    assert {change.setting for change in back} == {"queue_depth"}


def test_joint_regression_reverts_all_groups() -> None:
    # Each costs 4 %, which the profile tolerates; together they do not stay within it.
    bench = Bench({"queue_depth": 1.04, "scheduler": 1.04, "nomerges": 1.04})
    proofs, back = bench.proving().prove(bench.trial, part("scheduler", "queue_depth", "nomerges"))
    assert proofs[0].verdict.beyond
    assert not any(proof.verdict.beyond for proof in proofs[1:-1])
    assert (proofs[-1].again, proofs[-1].verdict.word) == (True, Conclusion.REGRESSED)
    assert {change.setting for change in back} == {"scheduler", "queue_depth", "nomerges"}


@pytest.mark.parametrize(
    ("share", "conclusion"), [(1.5, Conclusion.CANNOT_TELL), (0.5, Conclusion.REGRESSED)]
)
def test_doubtful_runs_are_excluded(share: float, conclusion: Conclusion) -> None:
    bench = Bench({"queue_depth": 2.0})
    proving, measure = bench.proving(), bench.measure

    def doubtful(subject: Subject, seconds: float, prepare: Prepare) -> ProbeOutcome:
        result = measure(subject, seconds, prepare)
        assert isinstance(result, ProbeResult)
        depth = round(result.workload.depth / share)
        return replace(result, workload=replace(result.workload, depth=depth))

    proving.measure = doubtful
    [proof, *_], back = proving.prove(bench.trial, part("queue_depth"))
    assert proof.doubted > 0
    assert (proof.verdict.word, bool(back)) == (conclusion, conclusion is Conclusion.REGRESSED)


@pytest.mark.parametrize(("requests", "doubted"), [(32, False), (256, True)])
def test_nr_requests_limit_is_trusted(requests: int, doubted: bool) -> None:
    bench = Bench({"nr_requests": 0.5})
    proving, measure = bench.proving(), bench.measure

    def held_back(subject: Subject, seconds: float, prepare: Prepare) -> ProbeOutcome:
        result = measure(subject, seconds, prepare)
        assert isinstance(result, ProbeResult)
        return replace(result, workload=replace(result.workload, depth=128))

    proving.measure = held_back
    request_row = replace(row("nr_requests"), current=requests, value=1024)
    [proof], _ = proving.prove(
        bench.trial, Representative(disk("sda"), (request_row,), (request_row,))
    )
    assert (proof.verdict.word, bool(proof.doubted)) == (Conclusion.IMPROVED, doubted)


def test_tolerated_cost_stays_applied() -> None:
    bench = Bench({"queue_depth": 1.03})
    [proof], back = bench.proving().prove(bench.trial, part("queue_depth"))
    assert (proof.verdict.beyond, back) == ((), [])
    assert all(change.ratio != 1 for change in proof.verdict.changes)


def test_pairs_run_in_random_order() -> None:
    bench = Bench({})
    sides: list[Side] = []
    measure = bench.measure

    def noted(subject: Subject, seconds: float, prepare: Prepare) -> ProbeOutcome:
        outcome = measure(subject, seconds, prepare)
        sides.append(bench.trial.at["id-sda", "queue_depth"])
        return outcome

    proving = bench.proving()
    proving.measure = noted
    proving.prove(bench.trial, part("queue_depth"))
    pairs = list(zip(sides[::2], sides[1::2], strict=True))
    assert all(set(pair) == set(Side) for pair in pairs)
    assert len(set(pairs)) == 2, "both orders occur"


def test_missing_time_is_inconclusive() -> None:
    bench = Bench({"queue_depth": 2.0})
    [proof], back = bench.proving(limit=30.0).prove(bench.trial, part("queue_depth"))
    assert (proof.left_out, proof.verdict.word, back) == (True, Conclusion.CANNOT_TELL, [])
    assert bench.runs == 0


def test_missing_confirmation_reverts_nothing() -> None:
    bench = Bench({"queue_depth": 2.0})
    proofs, back = bench.proving(limit=60.0).prove(bench.trial, part("scheduler", "queue_depth"))
    assert [proof.left_out for proof in proofs] == [False, True, True]
    assert back == []


@pytest.mark.parametrize(("guilty", "reverted"), [("queue_depth", True), ("scheduler", False)])
def test_short_time_confirms_likeliest_group(guilty: str, reverted: bool) -> None:
    # The load only reads, which shows nothing of a scheduler.
    bench = Bench({guilty: 2.0})
    proving = bench.proving(limit=85.0)
    announced: list[tuple[str, float, int]] = []
    proving.confirming = lambda *ahead: announced.append(ahead)
    proofs, back = proving.prove(bench.trial, part("scheduler", "queue_depth"))
    assert [(proof.group, proof.left_out) for proof in proofs] == [
        (None, False),
        ("depth", False),
        ("queue", True),
    ]
    assert {change.setting for change in back} == ({"queue_depth"} if reverted else set())
    assert announced == [("sda", 40.0, 1)], "as long as the first comparison"


@pytest.mark.parametrize("overhead", [0.4, 1.0, 1.8])
def test_runs_fit_given_time(overhead: float) -> None:
    bench = Bench({"queue_depth": 2.0})
    proving, measure = bench.proving(), bench.measure
    proving.shortest = 0.25

    def timed(subject: Subject, seconds: float, prepare: Prepare) -> ProbeOutcome:
        bench.seconds += overhead + seconds - 2.0
        return measure(subject, seconds, prepare)

    proving.measure = timed
    proof = proving.compare(bench.trial, part("queue_depth"), part("queue_depth").own, None, 50.0)
    assert proof.verdict.runs == DEFAULT_PAIRS
    assert bench.seconds == pytest.approx(50.0, rel=0.05)


def test_busy_disk_ends_switching() -> None:
    bench = Bench({"queue_depth": 2.0})
    proving = bench.proving()
    busy = Skipped("sda", Skip.BUSY)
    proving.idle = lambda subject: busy if bench.runs >= 5 else None
    [proof], back = proving.prove(bench.trial, part("queue_depth"))
    # Five runs, and the way back to what was applied.
    assert (bench.runs, bench.trial.switches) == (5, 6)
    assert (proof.outcome, proof.verdict.word, back) == (busy, Conclusion.CANNOT_TELL, [])
    assert bench.trial.at["id-sda", "queue_depth"] is Side.AFTER


def test_failed_pair_retries_are_limited() -> None:
    bench = Bench({"queue_depth": 2.0}, fails=(1, 4))
    [proof, *_], _ = bench.proving().prove(bench.trial, part("queue_depth"))
    assert (proof.verdict.runs, proof.outcome) == (DEFAULT_PAIRS, None)
    broken = Bench({"queue_depth": 2.0}, fails=range(1, 100))
    [proof], back = broken.proving().prove(broken.trial, part("queue_depth"))
    assert broken.runs == MAX_LOST_PAIRS + 1
    assert isinstance(proof.outcome, Failed)
    assert (proof.verdict.word, back) == (Conclusion.CANNOT_TELL, [])


def test_switch_conflict_ends_comparison() -> None:
    bench = Bench({"queue_depth": 2.0})
    bench.trial = FakeTrial(stays=[("id-sda", "queue_depth")])
    [proof], back = bench.proving().prove(bench.trial, part("queue_depth"))
    assert proof.written is not None
    assert proof.written.outcome is WriteOutcome.CONFLICT
    assert (proof.verdict.word, back, bench.runs) == (Conclusion.CANNOT_TELL, [], 0)


def test_stop_preserves_applied_values() -> None:
    bench = Bench({"queue_depth": 2.0})
    proving = bench.proving()
    proving.stop = lambda: bench.runs >= 4
    [proof], back = proving.prove(bench.trial, part("queue_depth"))
    assert (bench.runs, proof.verdict.runs, back) == (4, 2, [])
    assert bench.trial.at["id-sda", "queue_depth"] is Side.AFTER


def test_blocks_detect_regression() -> None:
    bench = Bench({"queue_depth": 3.0})
    proving = bench.proving()
    bench.trial.at["id-sda", "queue_depth"] = Side.BEFORE
    before, _ = proving.block(disk("sda"))
    bench.trial.at["id-sda", "queue_depth"] = Side.AFTER
    after, last = proving.block(disk("sda"))
    proof = proving.judge_blocks(part("queue_depth"), before, after, last)
    assert proof.verdict.word is Conclusion.REGRESSED
    assert proof.last == last


def test_failure_ends_block() -> None:
    bench = Bench({}, fails=(3,))
    runs, outcome = bench.proving().block(disk("sda"))
    assert len(runs) == 2
    assert isinstance(outcome, Failed)


def test_representative_covers_similar_disks() -> None:
    endpoints = [
        endpoint(target="sda", id="id-sda"),
        endpoint(target="sdb", id="id-sdb"),
        endpoint(target="sdc", id="id-sdc", medium=Medium.HDD),
        endpoint(target="sdd", id="id-sdd", adapter="0000:02:00.0"),
    ]
    rows = [row("queue_depth", drive.target, str(drive.adapter)) for drive in endpoints]
    vectors = [row("irq_affinity", "irq30"), row("irq_affinity", "irq99", "0000:02:00.0")]
    [representative] = make_representatives([disk("sda")], endpoints, [*rows, *vectors])
    assert [member.target for member in representative.own] == ["sda", "irq30"]
    assert [member.target for member in representative.all] == ["sda", "sdb", "irq30"]


def test_unchanged_representative_is_skipped() -> None:
    endpoints = [endpoint(target="sda", id="id-sda"), endpoint(target="sdb", id="id-sdb")]
    assert make_representatives([disk("sda")], endpoints, [row("queue_depth", "sdb")]) == []


@pytest.mark.parametrize("setting", ["scheduler", "nr_requests"])
def test_settings_that_reset_are_grouped(setting: str) -> None:
    bench = Bench({setting: 2.0})
    _, back = bench.proving().prove(bench.trial, part("scheduler", "nr_requests"))
    assert {change.setting for change in back} == {"scheduler", "nr_requests"}
