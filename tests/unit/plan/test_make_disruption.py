"""What disrupts the I/O of a whole adapter: done only where that was allowed, both ways."""

from pathlib import Path

from hbatune.act import journal
from hbatune.act.executor import Means
from hbatune.act.journal import Entry, Journal
from hbatune.act.restore import plan_rollback, restore_values
from hbatune.facts.model import Attribute, Machine, TargetKind
from hbatune.plan.make import PlanLimits, make_plan
from hbatune.plan.rows import Outcome, Row, State
from hbatune.policy.profile import Exactly
from hbatune.text.limit_text import describe_limit
from tests.unit.machines import adapter, control, machine
from tests.unit.profiles import profile


def host(text: str, sysfs: str = "/sys/class/scsi_host/host0") -> Machine:
    """Return a host with a Fibre Channel card whose `zio` contains ``text``."""
    scsi_host = control(
        target="host0",
        id="host0@0000:01:00.0",
        adapter="0000:01:00.0",
        kind=TargetKind.HOST,
        sysfs=sysfs,
        attributes={"zio": Attribute(text, True)},
    )
    card = adapter(target="0000:01:00.0", family="qla2xxx", controller=None)
    return machine(adapters=(card,), controls=(scsi_host,))


def row(text: str, wanted: int, *, disrupt: bool = False) -> Row:
    limits = PlanLimits(disrupt=disrupt)
    [planned_row] = make_plan(host(text), profile(("zio", Exactly(wanted))), limits=limits).rows
    return planned_row


def test_reset_requires_allow_reset() -> None:
    planned_row = row("Mode 6", 0)
    assert (planned_row.state, planned_row.current, planned_row.value) == (State.EXCLUDED, 1, None)
    assert "--allow-reset" in describe_limit(planned_row.limit)
    assert (row("Mode 6", 0, disrupt=True).state, row("Mode 6", 0, disrupt=True).value) == (
        State.DRIFT,
        0,
    )


def test_correct_value_needs_no_permission() -> None:
    assert row("Disabled", 0).state is State.OK


def test_unparsable_value_is_unreadable() -> None:
    assert row("Mode 7", 0, disrupt=True).state is State.UNREADABLE


def test_rollback_refuses_disruptive_restore(tmp_path: Path) -> None:
    (tmp_path / "zio").write_text("Mode 6\n")
    fc_host = host("Mode 6", str(tmp_path))
    means = Means(
        tmp_path / "journal.json",
        tmp_path / "writers",
        tmp_path / "spent.json",
        workers=1,
        deadline=20.0,
    )
    entry = Entry("host0@0000:01:00.0", "host0", "0000:01:00.0", "zio", 0, 1)
    filed = Journal(fc_host.boot_id, entries=(entry,))
    journal.save(means.journal, filed)
    [restored] = restore_values(plan_rollback(fc_host, filed, means), means)
    assert (restored.outcome, restored.current, restored.before) == (Outcome.REFUSED, 1, 0)
    assert "--allow-reset" in describe_limit(restored.limit)
    assert (tmp_path / "zio").read_text() == "Mode 6\n"
    assert journal.load(means.journal, fc_host.boot_id)[0].entries == (entry,)
    restore_values(plan_rollback(fc_host, filed, means, disrupt=True), means)
    assert (tmp_path / "zio").read_text().startswith("0")
