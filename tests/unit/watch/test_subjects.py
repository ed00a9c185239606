"""Tests of hbatune/watch/subjects.py."""

import msgspec

from hbatune.facts.model import Kind, Medium, Protocol, Storage
from hbatune.policy.library import Library
from hbatune.policy.profile import Match, Objective
from hbatune.shipped import find_shipped
from hbatune.watch.subjects import find_subjects
from tests.unit.machines import adapter, attributes, endpoint, machine, vector
from tests.unit.profiles import profile


def wants(p99_ms: float, **when: object) -> Objective:
    return Objective(p99_ms, "why", "D3-8", Match(**when))  # type: ignore[arg-type]


def test_subjects_get_objective_and_knee() -> None:
    flash = endpoint(target="nvme0n1", protocol=Protocol.NVME, medium=Medium.NVME, family="nvme")
    sas, volume = endpoint(), endpoint(target="sdb", protocol=Protocol.VOLUME)
    goal = profile()
    goal = msgspec.structs.replace(goal, objectives=(wants(2.0, protocol=(Protocol.NVME,)),))
    yardsticks = Library(find_shipped("rules")).yardsticks()
    array = endpoint(target="sdc", storage=Storage.ARRAY)
    server = machine(flash, sas, volume, array)
    subjects = find_subjects(server, goal, knees={sas.id: 48}, yardsticks=yardsticks)
    nvme, ssd, raid, _ = subjects.disks
    assert (nvme.objective_ms, nvme.knee) == (2.0, 128)
    assert (ssd.objective_ms, ssd.knee) == (None, 48)
    assert [disk.by_busy_time for disk in subjects.disks] == [False, True, False, False]
    assert raid.knee is None
    spinning = endpoint(protocol=Protocol.NVME, medium=Medium.HDD)
    remote = endpoint(protocol=Protocol.NVME, medium=Medium.HDD, storage=Storage.FABRIC)
    slow, far = find_subjects(machine(spinning, remote), yardsticks=yardsticks).disks
    assert (slow.knee, slow.by_busy_time, far.by_busy_time) == (None, True, False)


def test_commands_are_depths_or_tags() -> None:
    drive = endpoint(attributes=attributes(device__queue_depth="254"))
    flash = endpoint(family="nvme", tags=1023, hw_queues=4, attributes={})
    unknown = endpoint(family="nvme", tags=1023, hw_queues=None, attributes={})
    subjects = find_subjects(machine(drive, flash, unknown))
    assert [disk.commands for disk in subjects.disks] == [254, 4092, None]
    paths = [
        endpoint(
            target=name,
            kind=Kind.PATH,
            map="dm-0",
            attributes=attributes(device__queue_depth="30"),
        )
        for name in ("sda", "sdb")
    ]
    joined = endpoint(target="dm-0", kind=Kind.MAP, adapter=None, paths=("sda", "sdb"))
    assert find_subjects(machine(*paths, joined)).disks[2].commands == 60


def test_only_map_gets_objective() -> None:
    paths = [endpoint(target=name, kind=Kind.PATH, map="dm-0") for name in ("sda", "sdb")]
    joined = endpoint(target="dm-0", kind=Kind.MAP, adapter=None, paths=("sda", "sdb"))
    goal = msgspec.structs.replace(profile(), objectives=(wants(2.0),))
    first, second, over = find_subjects(machine(*paths, joined), goal).disks
    assert (first.objective_ms, second.objective_ms, over.objective_ms) == (None, None, 2.0)
    assert over.paths == (first.id, second.id)


def test_ramping_disk_expects_set_depth() -> None:
    drive = endpoint(attributes=attributes(device__queue_depth="254"))
    [disk] = find_subjects(machine(drive)).disks
    assert disk.depth == 254  # mpt3sas lowers it on a full queue
    [disk] = find_subjects(machine(drive), depths={drive.id: 64}).disks
    assert disk.depth == 64
    [disk] = find_subjects(machine(endpoint(family="megaraid_sas"))).disks
    assert disk.depth is None


def test_adapter_cpus_serve_data_vectors() -> None:
    vectors = (vector(irq=30, effective="2"), vector(irq=31, effective="4-5"), vector(irq=32))
    subjects = find_subjects(machine(adapters=(adapter(),), vectors=vectors))
    assert subjects.servers[0].cpus == (0, 2, 4, 5)
