"""The plan of a part of a machine is that part of the plan of the whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hbatune.facts.machine import KnownMachine
from hbatune.facts.model import Endpoint, Kind, Machine, Medium, Protocol
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
    adapter_address = draw(st.sampled_from(["0000:01:00.0", "0000:02:00.0"]))
    scheduler = draw(st.sampled_from(["[none] mq-deadline", "none [mq-deadline]"]))
    return endpoint(
        target=name,
        id=f"wwn-{number}@{adapter_address}/scsi-0:{number}:0",
        adapter=adapter_address,
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
    endpoints = [draw(disks(number)) for number in range(draw(st.integers(1, 8)))]
    maps = draw(st.lists(st.sampled_from([None, "dm-0", "dm-1"]), min_size=8, max_size=8))
    paths: dict[str, list[str]] = {}
    for number, (disk, name) in enumerate(zip(endpoints, maps, strict=False)):
        if name is not None:
            paths.setdefault(name, []).append(disk.target)
            endpoints[number] = replace(disk, kind=Kind.PATH, map=name)
    joined = [
        endpoint(target=name, id=f"mpath-{name}", adapter=None, address=None, host=None)
        for name in paths
    ]
    endpoints += [
        replace(endpoint, kind=Kind.MAP, paths=tuple(paths[endpoint.target])) for endpoint in joined
    ]
    cards = (adapter(), adapter(target="0000:02:00.0", hosts=(host(name="host1"),)))
    return machine(*endpoints, adapters=cards, vectors=(vector(),))


def together(full_machine: Machine, name: str) -> tuple[Endpoint, ...]:
    """Return a disk with its map and all paths of that map."""
    [named] = (endpoint for endpoint in full_machine.endpoints if endpoint.target == name)
    above = named.target if named.kind is Kind.MAP else named.map
    targets = {name, above} | {
        endpoint.target
        for endpoint in full_machine.endpoints
        if endpoint.map and endpoint.map == above
    }
    return tuple(endpoint for endpoint in full_machine.endpoints if endpoint.target in targets)


def rows(plan: Plan, ids: frozenset[str]) -> dict[tuple[str, str], Row]:
    return {(row.id, row.setting): row for row in plan.rows if row.id in ids}


@given(full_machine=machines(), data=st.data())
def test_partial_plan_matches_full_plan(full_machine: Machine, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([endpoint.target for endpoint in full_machine.endpoints]))
    related = together(full_machine, name)
    small_machine = replace(full_machine, endpoints=related, vectors=())
    ids = frozenset(endpoint.id for endpoint in related)
    for profile in PROFILES:
        planned = make_plan(full_machine, profile)
        by_id: dict[str, list[Row]] = {}
        for row in planned.rows:
            by_id.setdefault(row.id, []).append(row)
        bytes_of = sum_beyond_defaults(full_machine, by_id)
        elsewhere = sum(count for id, count in bytes_of.items() if id not in ids)
        alone = make_plan(small_machine, profile, limits=PlanLimits(elsewhere=elsewhere))
        assert rows(alone, ids) == rows(planned, ids)
        assert alone.memory.total == planned.memory.total
        assert alone.memory.growing == planned.memory.growing & ids


def test_update_refreshes_machine() -> None:
    first, second = endpoint(), endpoint(target="sdb", host=host(name="host1"))
    known_machine = KnownMachine(machine(first, second))
    assert known_machine.of_host("host0") == {"sda"}
    assert known_machine.of_scsi_targets({"0:0:0"}) == known_machine.machine.endpoints
    moved = replace(first, id="other", host=host(name="host1"))
    known_machine.update(machine(moved))
    assert known_machine.of_host("host0") == frozenset()
    assert known_machine.of_host("host1") == {"sda", "sdb"}
    assert known_machine.get("sda") == replace(moved, attributes={})
    known_machine.update(replace(machine(), endpoints=()), removed=["sdb"])
    assert [endpoint.target for endpoint in known_machine.machine.endpoints] == ["sda"]


def test_existing_twin_makes_id_ambiguous(monkeypatch: pytest.MonkeyPatch) -> None:
    present = {"sda": "/sys/devices/sda"}
    monkeypatch.setattr("hbatune.facts.machine.find_disk_directory", present.get)
    first, renamed = endpoint(), endpoint(target="sdb", id=endpoint().id)
    known_machine = KnownMachine(machine(first))
    assert not known_machine.is_ambiguous({"sda": first})
    assert known_machine.is_ambiguous({"sdb": renamed})
    present.clear()
    assert not known_machine.is_ambiguous({"sdb": renamed})
