"""A vector that a write has shown to be managed is not planned again."""

from pathlib import Path

from msgspec.structs import replace

from hbatune.act.interrupts import remember_immovable, with_records
from hbatune.act.journal import Entry, Journal
from hbatune.plan.make import make_plan
from hbatune.plan.rows import State
from hbatune.policy.profile import Exactly
from tests.unit.machines import adapter, machine, vector
from tests.unit.profiles import profile

PLACE = profile(("irq_affinity", Exactly("0")))
VECTORS = (vector(irq=30, inferred=True), vector(irq=31, inferred=True))
HOST = replace(machine(adapters=(adapter(),)), vectors=VECTORS)
NOTHING = Journal(HOST.boot_id)


def test_refused_interrupt_stays_fixed(tmp_path: Path) -> None:
    file = tmp_path / "run" / "locked.json"
    plan = make_plan(with_records(HOST, NOTHING, file), PLACE)
    first, second = plan.rows
    assert (first.state, second.state) == (State.DRIFT, State.DRIFT)
    remember_immovable(file, plan, [replace(first, state=State.FIXED), second])
    remember_immovable(file, plan, [])
    states = {
        row.target: row.state for row in make_plan(with_records(HOST, NOTHING, file), PLACE).rows
    }
    assert states == {"irq30": State.FIXED, "irq31": State.DRIFT}
    remember_immovable(file, plan, [replace(second, state=State.FIXED)])
    assert {row.state for row in make_plan(with_records(HOST, NOTHING, file), PLACE).rows} == {
        State.FIXED
    }


def test_fixed_rows_are_not_stored(tmp_path: Path) -> None:
    file = tmp_path / "locked.json"
    plan = make_plan(HOST, PLACE)
    fixed_rows = [replace(row, setting="queue_depth", state=State.FIXED) for row in plan.rows]
    remember_immovable(file, plan, [*plan.rows, *fixed_rows])
    assert not file.exists()


def test_invalid_record_fixes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "locked.json"
    file.write_bytes(b"{")
    assert with_records(HOST, NOTHING, file) == HOST


def test_journal_names_placed_vectors(tmp_path: Path) -> None:
    placed, other = HOST.vectors
    entries = (
        Entry(placed.id, "irq30", placed.adapter, "irq_affinity", "0-7", "3"),
        Entry(other.id, "irq31", other.adapter, "irq_affinity", "0-7"),
    )
    vectors = with_records(HOST, Journal(HOST.boot_id, entries), tmp_path / "none").vectors
    assert [vector.placed for vector in vectors] == [(3,), ()]
