"""What hbatune has set and the profile in force does not want goes back to its baseline."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from hbatune.act import journal
from hbatune.act.executor import Means
from hbatune.act.writer import write_plan
from hbatune.plan import make
from hbatune.plan.make import EarlierChanges, PlanLimits, SetBefore
from hbatune.plan.rows import BASELINE_RULE, Outcome, Plan, Row, RowKey, State
from hbatune.policy.profile import AtLeast, Effect, Exactly, Leave
from hbatune.settings.table import Value
from hbatune.text.limit_text import Limit, LimitReason, describe_limit
from tests.unit.disk_files import Disk, filed
from tests.unit.machines import attributes, endpoint, machine
from tests.unit.profiles import profile

DEPTH = "queue_depth"


def earlier(before: Value, value: Value) -> SetBefore:
    return SetBefore(before, lambda current: current == value)


def row(
    depth: int,
    *effects: tuple[str, Effect],
    set_before: SetBefore | None = None,
    excluded: LimitReason | None = None,
) -> Row | None:
    """Return the row of a LUN's depth. ``set_before`` is an earlier profile's change."""
    lun = endpoint(attributes=attributes(device__queue_depth=str(depth)))
    values_before: Mapping[RowKey, SetBefore] = {(lun.id, DEPTH): set_before} if set_before else {}
    changes = EarlierChanges(set_before=values_before)
    limits = PlanLimits(excluded={lun.id: excluded} if excluded else {})
    plan = make.make_plan(machine(lun), profile(*effects), limits=limits, earlier=changes)
    return next((planned_row for planned_row in plan.rows if planned_row.setting == DEPTH), None)


@pytest.mark.parametrize(
    ("before", "at_least", "value"),
    [
        (32, 128, 128),  # throughput had raised it to 254: this profile alone gives 128
        (200, 128, 200),  # never below the driver's own
        (32, 254, 254),
    ],
)
def test_depth_rises_from_baseline(before: int, at_least: int, value: int) -> None:
    planned_row = row(254, (DEPTH, AtLeast(at_least)), set_before=earlier(before, 254))
    assert planned_row is not None
    assert planned_row.value == value
    assert planned_row.state is (State.OK if value == 254 else State.DRIFT)


def test_foreign_depth_counts_as_current() -> None:
    planned_row = row(250, (DEPTH, AtLeast(128)), set_before=earlier(32, 254))
    assert planned_row is not None
    assert (planned_row.state, planned_row.value) == (State.OK, 250)


@pytest.mark.parametrize("effects", [(), ((DEPTH, Leave()),)], ids=["no rule", "left"])
def test_unwanted_value_reverts_to_baseline(effects: tuple[tuple[str, Effect], ...]) -> None:
    planned_row = row(128, *effects, set_before=earlier(32, 128))
    assert planned_row is not None
    assert (planned_row.rule, planned_row.state, planned_row.value) == (
        BASELINE_RULE,
        State.DRIFT,
        32,
    )
    assert row(32, *effects, set_before=earlier(32, 128)) is None, "it is back"


@pytest.mark.parametrize("excluded", [None, LimitReason(Limit.EXCLUDED)])
def test_doubtful_rule_keeps_value(excluded: LimitReason | None) -> None:
    effect = (DEPTH, Leave(doubtful=True))
    assert row(128, effect, set_before=earlier(32, 128), excluded=excluded) is None
    assert row(32, effect) is None


def test_excluded_value_reverts_first() -> None:
    effect = (DEPTH, Exactly(64))
    planned_row = row(64, effect, set_before=earlier(32, 64), excluded=LimitReason(Limit.EXCLUDED))
    assert planned_row is not None
    assert (planned_row.rule, planned_row.value) == (BASELINE_RULE, 32)
    after = row(32, effect, set_before=earlier(32, 64), excluded=LimitReason(Limit.EXCLUDED))
    assert after is not None
    assert after.state is State.EXCLUDED


def test_foreign_change_is_no_drift() -> None:
    planned_row = row(77, set_before=earlier(32, 128))
    assert planned_row is not None
    assert (planned_row.state, planned_row.value, planned_row.taken_over) == (
        State.EXCLUDED,
        None,
        True,
    )
    assert "changed after hbatune set it" in describe_limit(planned_row.limit)


def test_tag_set_is_not_shrunk() -> None:
    lun_attributes = attributes(queue__scheduler="[none] mq-deadline", queue__nr_requests="975")
    lun = endpoint(attributes=lun_attributes, tags=975)
    changes = EarlierChanges(set_before={(lun.id, "nr_requests"): earlier(256, 975)})
    [stays] = make.make_plan(machine(lun), profile(), earlier=changes).rows
    assert (stays.state, stays.value) == (State.FIXED, None)
    assert "adapter's 975 tags" in describe_limit(stays.limit)


# -- written, on plain files in place of sysfs ----------------------------------------------------


class Bench:
    """A disk that one profile after another is applied to."""

    def __init__(self, tmp_path: Path) -> None:
        self.disk = Disk(
            tmp_path / "sys", "sda", queue__scheduler="[kyber] bfq", queue__nr_requests="256"
        )
        self.means = Means(
            tmp_path / "state/journal.json",
            tmp_path / "run/writers",
            tmp_path / "spent.json",
            1,
            20.0,
        )

    def plan(self, *effects: tuple[str, Effect]) -> Plan:
        changes = EarlierChanges(set_before=self.set_before())
        return make.make_plan(machine(self.disk.endpoint()), profile(*effects), earlier=changes)

    def set_before(self) -> dict[RowKey, SetBefore]:
        entries = (entry for entry in filed(self.means).entries if entry.value is not None)
        return {entry.key: SetBefore(entry.before, entry.ours) for entry in entries}

    def apply(self, *effects: tuple[str, Effect]) -> dict[str, Outcome | None]:
        plan = self.plan(*effects)
        rows = write_plan(machine(self.disk.endpoint()), plan, filed(self.means), self.means)
        return {row.setting: row.outcome for row in rows}

    def read_values(self) -> tuple[str, str]:
        return self.disk.value("queue/nomerges"), self.disk.value("queue/rq_affinity")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


NOMERGES, AFFINITY = ("nomerges", Exactly(1)), ("rq_affinity", Exactly(2))


def test_profile_switch_reverts_old_values(bench: Bench) -> None:
    bench.apply(NOMERGES, AFFINITY)
    assert bench.read_values() == ("1", "2")
    assert bench.apply(AFFINITY) == {"nomerges": Outcome.WRITTEN, "rq_affinity": Outcome.KEPT}
    assert bench.read_values() == ("0", "2")
    assert [entry.setting for entry in filed(bench.means).entries] == ["rq_affinity"]
    assert bench.plan(AFFINITY).drift == ()


def test_foreign_change_conflicts_once(bench: Bench) -> None:
    bench.apply(NOMERGES)
    (bench.disk.path / "queue/nomerges").write_text("2")
    assert bench.apply() == {"nomerges": Outcome.CONFLICT}
    assert bench.read_values()[0] == "2"
    assert bench.apply() == {}, "it is the administrator's from now on"
    [entry] = filed(bench.means).entries
    assert (entry.before, entry.value) == (0, None), "a rollback still knows what was there"


def test_killed_run_owns_both_values(bench: Bench) -> None:
    """Between the baselines and the writes the journal knows both values that may be there."""
    bench.apply(NOMERGES)
    record = filed(bench.means)
    again = journal.Entry(record.entries[0].id, "sda", None, "nomerges", 1, 2)
    begun = record.begun(journal.Run("apply", None, None, 0.0), [again])  # type: ignore[arg-type]
    [entry] = begun.entries
    assert (entry.before, entry.ours(1), entry.ours(2), entry.ours(0)) == (0, True, True, False)


def test_clamped_value_becomes_effect(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that a write left otherwise than asked for is the write's own effect."""
    from hbatune.act import chain

    def clamped(path: str, text: str) -> None:
        Path(path).write_text("2" if path.endswith("nomerges") else text)

    monkeypatch.setattr(chain, "_store", clamped)
    bench.apply(NOMERGES)
    [entry] = filed(bench.means).entries
    assert (entry.value, entry.effect, entry.ours(2), entry.ours(1)) == (None, 2, True, False)
