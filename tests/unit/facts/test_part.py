"""The plan of a part of a machine is that part of the plan of the whole."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hbatune.facts.model import Endpoint, Kind, Machine, Medium, Protocol
from hbatune.facts.part import KnownMachine
from hbatune.plan.joint_limits import sum_beyond_defaults
from hbatune.plan.make import PlanLimits, make_plan
from hbatune.plan.rows import Plan, Row
from hbatune.policy.library import installed_library, load_profile
from tests.unit.machines import adapter, attributes, endpoint, host, machine, vector

PROFILES = [load_profile(name, installed_library()) for name in ("oltp", "throughput")]


@st.composite
def disks(draw: st.DrawFn, number: int) -> Endpoint:
    """A disk on one of two adapters, with any scheduler, requests and depth."""
    name = f"sd{chr(97 + number)}"
    own = draw(st.sampled_from(["0000:01:00.0", "0000:02:00.0"]))
    scheduler = draw(st.sampled_from(["[none] mq-deadline", "none [mq-deadline]"]))
    return endpoint(
        target=name,
        id=f"wwn-{number}@{own}/scsi-0:{number}:0",
        adapter=own,
        address=f"0:0:{number}:0",
        protocol=draw(st.sampled_from([Protocol.SAS, Protocol.SATA, Protocol.FC])),
        medium=draw(st.sampled_from([Medium.SSD, Medium.HDD])),
        attributes=attributes(
            queue__scheduler=scheduler,
            queue__nr_requests=str(draw(st.sampled_from([32, 256, 2048]))),
            device__queue_depth=str(draw(st.sampled_from([1, 32, 128, 254]))),
        ),
    )


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    """A machine of up to eight disks, some of which are the paths of maps."""
    found = [draw(disks(number)) for number in range(draw(st.integers(1, 8)))]
    maps = draw(st.lists(st.sampled_from([None, "dm-0", "dm-1"]), min_size=8, max_size=8))
    paths: dict[str, list[str]] = {}
    for number, (disk, name) in enumerate(zip(found, maps, strict=False)):
        if name is not None:
            paths.setdefault(name, []).append(disk.target)
            found[number] = replace(disk, kind=Kind.PATH, map=name)
    joined = [
        endpoint(target=name, id=f"mpath-{name}", adapter=None, address=None, host=None)
        for name in paths
    ]
    found += [replace(each, kind=Kind.MAP, paths=tuple(paths[each.target])) for each in joined]
    cards = (adapter(), adapter(target="0000:02:00.0", hosts=(host(name="host1"),)))
    return machine(*found, adapters=cards, vectors=(vector(),))


def together(whole: Machine, name: str) -> tuple[Endpoint, ...]:
    """Return a disk with the map that it is in, and all paths of that."""
    [named] = (each for each in whole.endpoints if each.target == name)
    above = named.target if named.kind is Kind.MAP else named.map
    found = {name, above} | {
        each.target for each in whole.endpoints if each.map and each.map == above
    }
    return tuple(each for each in whole.endpoints if each.target in found)


def rows(plan: Plan, ids: frozenset[str]) -> dict[tuple[str, str], Row]:
    return {(row.id, row.setting): row for row in plan.rows if row.id in ids}


@given(whole=machines(), data=st.data())
def test_partial_plan_matches_full_plan(whole: Machine, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([each.target for each in whole.endpoints]))
    found = together(whole, name)
    part = replace(whole, endpoints=found, vectors=())
    ids = frozenset(each.id for each in found)
    for profile in PROFILES:
        planned = make_plan(whole, profile)
        by_id: dict[str, list[Row]] = {}
        for row in planned.rows:
            by_id.setdefault(row.id, []).append(row)
        bytes_of = sum_beyond_defaults(whole, by_id)
        elsewhere = sum(count for id, count in bytes_of.items() if id not in ids)
        alone = make_plan(part, profile, limits=PlanLimits(elsewhere=elsewhere))
        assert rows(alone, ids) == rows(planned, ids)
        assert alone.memory.total == planned.memory.total
        assert alone.memory.growing == planned.memory.growing & ids


def test_update_refreshes_machine() -> None:
    first, second = endpoint(), endpoint(target="sdb", host=host(name="host1"))
    known = KnownMachine(machine(first, second))
    assert known.of_host("host0") == {"sda"}
    assert known.alike(first.id) == {"sda"}
    moved = replace(first, id="other", host=host(name="host1"))
    known.update(machine(moved))
    assert known.of_host("host0") == known.alike(first.id) == frozenset()
    assert known.of_host("host1") == {"sda", "sdb"}
    assert known.get("sda") == replace(moved, attributes={})
    known.update(replace(machine(), endpoints=()), removed=["sdb"])
    assert [each.target for each in known.machine.endpoints] == ["sda"]
