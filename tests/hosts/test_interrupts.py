"""What hbatune makes of the interrupts of described machines: found, planned, moved, put back."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from hbatune.facts.model import Machine, Role, TargetKind
from hbatune.facts.targets import UnknownTargetError, find_named_targets
from hbatune.plan.make import make_plan
from hbatune.plan.rows import Outcome, Plan, Row, State
from hbatune.policy.library import Library, load_profile
from hbatune.policy.profile import Exactly, Match, Profile, Rule
from hbatune.settings.table import list_attributes
from hbatune.shipped import find_shipped
from hbatune.text.limit_text import describe_limit
from tests.hosts import interrupts, raid, virtual
from tests.hosts.namespace import gather_in, run
from tests.hosts.tree import Described

Build = Callable[[Described], Path]

# Applies a profile to the machine and puts everything back; prints the rows of both.
_THERE_AND_BACK = """
import sys
from pathlib import Path
import msgspec
from hbatune.act import journal
from hbatune.act.writer import write_plan
from hbatune.act.executor import Means
from hbatune.act.restore import plan_rollback, restore_values
from hbatune.facts.machine import gather_machine
from hbatune.plan.make import make_plan
from tests.hosts.test_interrupts import profile

state = Path(sys.argv[1])
files = [state / name for name in ("journal.json", "claims", "spent.json")]
means = Means(*files, workers=2, deadline=20.0)
machine = gather_machine(())
plan = make_plan(machine, profile("oltp"), only={vector.id for vector in machine.vectors})
filed = journal.load(means.journal, machine.boot_id)[0]
applied = write_plan(machine, plan, filed, means)
there = {vector.target: vector.affinity.text for vector in gather_machine(()).vectors}
filed = journal.load(means.journal, machine.boot_id)[0]
restored = restore_values(plan_rollback(gather_machine(()), filed, means), means)
back = {vector.target: vector.affinity.text for vector in gather_machine(()).vectors}
sys.stdout.buffer.write(msgspec.json.encode((applied, there, restored, back)))
"""


# Puts back interrupts that were placed when each of them carried data.
_BACK = """
import sys
from pathlib import Path
import msgspec
from hbatune.act import journal
from hbatune.act.executor import Means
from hbatune.act.journal import Entry, Journal
from hbatune.act.restore import plan_rollback, restore_values
from hbatune.facts.machine import gather_machine

state = Path(sys.argv[1])
files = [state / name for name in ("journal.json", "claims", "spent.json")]
means = Means(*files, workers=2, deadline=20.0)
machine = gather_machine(())
placed = [
    Entry(each.id, each.target, each.adapter, "irq_affinity", "1", each.affinity.text)
    for each in machine.vectors
    if each.names
]
rows = restore_values(plan_rollback(machine, Journal(machine.boot_id, tuple(placed)), means), means)
back = {vector.target: vector.affinity.text for vector in gather_machine(()).vectors}
left = journal.load(means.journal, machine.boot_id)[0].entries
sys.stdout.buffer.write(msgspec.json.encode((rows, back, [each.target for each in left])))
"""


# Applies a profile, plans it again with what the journal says, and puts everything back.
_TWICE = """
import sys
from pathlib import Path
import msgspec
from hbatune.act import journal
from hbatune.act.executor import Means
from hbatune.act.interrupts import with_records
from hbatune.act.restore import plan_rollback, restore_values
from hbatune.act.writer import write_plan
from hbatune.facts.machine import gather_machine
from hbatune.plan.make import make_plan
from tests.hosts.test_interrupts import profile

state = Path(sys.argv[1])
files = [state / name for name in ("journal.json", "claims", "spent.json")]
means = Means(*files, workers=2, deadline=20.0)

def planned():
    machine = gather_machine(())
    filed = journal.load(means.journal, machine.boot_id)[0]
    machine = with_records(machine, filed, state / "locked.json")
    ids = {vector.id for vector in machine.vectors}
    return machine, filed, make_plan(machine, profile("oltp"), only=ids)

machine, filed, plan = planned()
first = write_plan(machine, plan, filed, means)
machine, filed, plan = planned()
restore_values(plan_rollback(machine, filed, means), means)
restored = {vector.target: vector.affinity.text for vector in gather_machine(()).vectors}
sys.stdout.buffer.write(msgspec.json.encode((first, plan.rows, restored)))
"""


def profile(name: str) -> Profile:
    return load_profile(name, Library(find_shipped("rules"), site=Path("/nonexistent")))


def planned(machine: Machine, name: str = "oltp") -> Plan:
    return make_plan(machine, profile(name))


def affinities(plan: Plan) -> dict[str, Row]:
    return {row.target: row for row in plan.rows if row.setting == "irq_affinity"}


def test_only_free_data_vectors_move(built: Build) -> None:
    machine = gather_in(built(interrupts.mixed()))
    roles = {vector.irq: (vector.role, vector.managed) for vector in machine.vectors}
    assert roles == {
        40: (Role.ADMIN, False),
        41: (Role.DATA, False),
        42: (Role.DATA, True),
        49: (Role.UNKNOWN, False),
    }
    rows = affinities(planned(machine))
    assert {name: row.state for name, row in rows.items()} == {
        "irq41": State.OK,
        "irq42": State.FIXED,
    }
    assert describe_limit(rows["irq42"].limit) == "set by the kernel (managed interrupt)"


def test_first_ipr_vector_is_admin(built: Build) -> None:
    machine = gather_in(built(raid.ipr()))
    admin_vector, *data = machine.vectors
    assert (admin_vector.names, admin_vector.role) == (("host0-0",), Role.ADMIN)
    assert {vector.role for vector in data} == {Role.DATA}
    moved = {row.target for row in planned(machine).rows if row.setting == "irq_affinity"}
    assert moved == {f"irq{vector.irq}" for vector in data}


def test_lone_vector_serves_data(built: Build) -> None:
    machine = gather_in(built(interrupts.lone()))
    [vector] = machine.vectors
    assert (vector.role, vector.managed) == (Role.DATA, False)
    assert list(affinities(planned(machine))) == [f"irq{vector.irq}"]


def test_resetting_controller_vector_is_admin(built: Build) -> None:
    machine = gather_in(built(interrupts.in_reset()))
    assert [vector.role for vector in machine.vectors] == [Role.ADMIN]
    assert not affinities(planned(machine))


def test_repurposed_interrupt_is_restored(built: Build, tmp_path: Path) -> None:
    out = run(built(interrupts.mixed()), [sys.executable, "-c", _BACK, str(tmp_path)])
    rows, back, remaining = msgspec.json.decode(out)
    outcomes = {row["target"]: (row["outcome"], row["gone"]) for row in rows}
    admin, data, managed = "irq40", "irq41", "irq42"
    assert outcomes[admin] == outcomes[data] == (Outcome.WRITTEN, False)
    assert back[admin] == back[data] == "1"
    assert outcomes[managed] == (Outcome.VANISHED, True)
    assert back[managed] != "1"
    assert not remaining


def test_polled_vectors_stay_put(built: Build) -> None:
    machine = gather_in(built(interrupts.polled("1")))
    roles = {vector.irq: (vector.role, vector.serves) for vector in machine.vectors}
    assert roles == {
        40: (Role.ADMIN, None),
        41: (Role.DATA, "0"),
        42: (Role.DATA, "1"),
        43: (Role.POLLED, None),
    }
    assert "irq43" not in affinities(planned(machine))


def test_excess_polled_queues_are_ignored(built: Build) -> None:
    machine = gather_in(built(interrupts.polled("2")))
    assert [vector.role for vector in machine.vectors] == [Role.ADMIN, *[Role.DATA] * 3]


def test_managed_vectors_are_inferred(built: Build) -> None:
    machine = gather_in(built(interrupts.silent()))
    admin, *data = machine.vectors
    assert (admin.role, admin.managed) == (Role.ADMIN, False)
    for vector, cpus in zip(data, ("0-1", "2-3"), strict=True):
        assert (vector.managed, vector.inferred, vector.serves) == (True, True, cpus)
    rows = affinities(planned(machine))
    assert {row.state for row in rows.values()} == {State.FIXED}
    assert all("inferred from" in describe_limit(row.limit) for row in rows.values())


def test_explicit_kernel_flags_prevent_inference(built: Build) -> None:
    machine = gather_in(built(virtual.nvme()))
    assert not any(vector.inferred for vector in machine.vectors)
    for row in affinities(planned(machine)).values():
        assert "inferred from" not in describe_limit(row.limit)


def test_displaced_vectors_are_drift(built: Build) -> None:
    machine = gather_in(built(interrupts.set_free()))
    rows = affinities(planned(machine))
    assert {name: (row.state, row.value) for name, row in rows.items()} == {
        "irq41": (State.DRIFT, "0"),
        "irq42": (State.DRIFT, "1"),
    }


def test_local_vectors_avoid_isolated_cpus(built: Build) -> None:
    machine = gather_in(built(interrupts.two_nodes()))
    assert (machine.processors.isolated, machine.processors.nohz_full) == ((1,), (1, 5))
    rows = affinities(planned(machine))
    assert {name: row.value for name, row in rows.items()} == {
        "irq50": "0",
        "irq51": "2",
        "irq52": "3",
        "irq60": "4",
        "irq61": "6",
        "irq62": "7",
    }
    assert {(row.wanted, row.current, row.source) for row in rows.values()} == {
        ("local", "5", "K-irq-spread")
    }
    assert not affinities(planned(machine, "balanced"))


def confined(command_line: str) -> Described:
    machine = interrupts.two_nodes()
    return replace(machine, cpus=replace(machine.cpus, command_line=command_line))


def test_irqaffinity_limits_vector_cpus(built: Build) -> None:
    machine = gather_in(built(confined("ro irqaffinity=0-7 irqaffinity=0,2 -- irqaffinity=4")))
    assert machine.processors.irqaffinity == (0, 2)
    rows = affinities(planned(machine))
    assert {name: row.value for name, row in rows.items()} == {
        "irq50": "0",
        "irq51": "2",
        "irq52": "0",
        "irq60": "2",
        "irq61": "0",
        "irq62": "2",
    }
    for row in rows.values():
        assert "irqaffinity= excludes CPUs 3-4,6-7" in describe_limit(row.limit)
    assert "one farther away" in describe_limit(rows["irq60"].limit)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("irqaffinity=0-x", "irqaffinity= makes no sense"),
        ("irqaffinity=1", "no CPU is left for interrupts: isolcpus= excludes CPUs 1; nohz_full="),
    ],
)
def test_empty_irqaffinity_moves_nothing(built: Build, option: str, message: str) -> None:
    rows = affinities(planned(gather_in(built(confined(option)))))
    assert {row.state for row in rows.values()} == {State.FIXED}
    for row in rows.values():
        assert message in describe_limit(row.limit)


@pytest.mark.parametrize("listed", [True, False])
def test_isolated_partitions_are_avoided(built: Build, listed: bool) -> None:
    machine = gather_in(built(interrupts.partitioned(listed=listed)))
    rows = affinities(planned(machine))
    for row in rows.values():
        assert row.value not in ("2", "3")
        assert "cpuset.cpus.partition excludes CPUs 2-3" in describe_limit(row.limit)
    assert rows["irq50"].value == "0"


def test_narrowed_default_limits_vector_cpus(built: Build) -> None:
    described = interrupts.two_nodes()
    root = built(replace(described, cpus=replace(described.cpus, default="01")))
    rows = affinities(planned(gather_in(root)))
    assert {row.state for row in rows.values()} == {State.FIXED}, "pinned outside of the default"
    for row in rows.values():
        reason = describe_limit(row.limit)
        assert "/proc/irq/default_smp_affinity excludes CPUs 2-4,6-7" in reason
        assert "its smp_affinity was narrowed to CPUs 5" in reason


def test_pinned_vectors_stay_within_masks(built: Build) -> None:
    rows = affinities(planned(gather_in(built(interrupts.pinned()))))
    assert {name: (row.state, row.value) for name, row in rows.items()} == {
        "irq50": (State.DRIFT, "2"),
        "irq51": (State.FIXED, None),
        "irq52": (State.DRIFT, "0"),
        "irq53": (State.OK, "1"),
        "irq54": (State.FIXED, None),
    }
    reasons = {name: describe_limit(row.limit) for name, row in rows.items()}
    assert reasons["irq51"] == (
        "no CPU is left for interrupts: isolcpus= excludes CPUs 6; "
        "/proc/irq/default_smp_affinity excludes CPUs 7; its smp_affinity was narrowed to CPUs 6"
    )
    assert reasons["irq50"].endswith("its smp_affinity was narrowed to CPUs 2-3")
    for name in ("irq52", "irq53"):
        assert "narrowed" not in reasons[name], "everywhere, and where its driver suggests"


def test_isolcpus_managed_irq_frees_cpus(built: Build) -> None:
    rows = affinities(planned(gather_in(built(confined("isolcpus=managed_irq,4-7 quiet")))))
    assert {row.value for row in rows.values()} <= {"0", "2", "3"}
    for row in rows.values():
        assert "isolcpus=managed_irq excludes CPUs 4,6-7" in describe_limit(row.limit)


def test_placed_vectors_keep_their_cpus(built: Build, tmp_path: Path) -> None:
    """Masks that hbatune narrowed are no decision, and a second spread moves nothing."""
    described = interrupts.two_nodes()
    vectors = [
        replace(function, vectors=tuple(replace(v, hint="20") for v in function.vectors))
        for function in described.functions
    ]
    cpus = replace(described.cpus, default="ff")
    root = built(replace(described, functions=tuple(vectors), cpus=cpus))
    out = run(root, [sys.executable, "-c", _TWICE, str(tmp_path)])
    first, second, restored = msgspec.json.decode(out)
    assert {row["outcome"] for row in first} == {str(Outcome.WRITTEN)}
    assert [row["value"] for row in second] == [row["value"] for row in first]
    assert {row["state"] for row in second} == {str(State.OK)}
    assert not any("narrowed" in str(row["limit"]) for row in second)
    assert set(restored.values()) == {"5"}


def test_shared_line_is_not_movable(built: Build) -> None:
    machine = gather_in(built(interrupts.line()))
    assert [(vector.irq, vector.role) for vector in machine.vectors] == [(11, Role.LINE)]
    assert not affinities(planned(machine))
    with pytest.raises(UnknownTargetError):
        find_named_targets(machine, ["irq11"])


def test_names_select_adapter_vectors(built: Build) -> None:
    machine = gather_in(built(interrupts.two_nodes()))
    ids = {vector.target: vector.id for vector in machine.vectors}
    assert find_named_targets(machine, ["irq51"]) == {ids["irq51"]}
    assert {ids["irq60"], ids["irq61"], ids["irq62"]} < find_named_targets(
        machine, ["0000:02:00.0"]
    )
    assert not find_named_targets(machine, ["sda"]) & set(ids.values())
    by_host = find_named_targets(machine, ["host1"])
    assert by_host == find_named_targets(machine, ["0000:02:00.0"])


def test_named_plan_matches_full_plan(built: Build) -> None:
    """What is not named does not change where the named ones go."""
    machine = gather_in(built(interrupts.two_nodes()))
    named_plan = make_plan(machine, profile("oltp"), only=find_named_targets(machine, ["irq52"]))
    assert named_plan.rows == (affinities(planned(machine))["irq52"],)


def test_vectors_move_and_return(built: Build, tmp_path: Path) -> None:
    root = built(interrupts.two_nodes())
    out = run(root, [sys.executable, "-c", _THERE_AND_BACK, str(tmp_path)])
    applied, moved, restored, back = msgspec.json.decode(out)
    assert {row["outcome"] for row in applied} == {str(Outcome.WRITTEN)}
    assert moved == {row["target"]: row["value"] for row in applied}
    assert {row["outcome"] for row in restored} == {str(Outcome.WRITTEN)}
    assert set(back.values()) == {"5"}


def test_option_is_fixed_until_reload(built: Build) -> None:
    root = built(raid.megaraid_sas())
    script = (
        "import sys, msgspec; from hbatune.facts.machine import gather_machine;"
        "from hbatune.facts.model import TargetKind; from hbatune.settings.table import "
        "list_attributes;"
        "host = TargetKind.HOST;"
        "found = gather_machine((), of={host: list_attributes(on=host)});"
        "sys.stdout.buffer.write(msgspec.json.encode(found))"
    )
    machine = msgspec.json.decode(run(root, [sys.executable, "-c", script]), type=Machine)
    [control] = machine.controls
    assert (control.target, control.kind) == ("host0", TargetKind.HOST)
    wish = msgspec.structs.replace(profile("balanced"), rules=(_perf_mode(),))
    [row] = make_plan(machine, wish).rows
    assert (row.state, row.current, row.wanted) == (State.FIXED, -1, 2)
    assert "perf_mode=2 when it is loaded" in describe_limit(row.limit)
    assert list_attributes(["perf_mode"], TargetKind.HOST)[0] in control.attributes


def _perf_mode() -> Rule:
    return Rule("mode", Match(), "perf_mode", Exactly(2), "a test", "D0-4", "test.toml")
