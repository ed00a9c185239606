"""What hbatune says of described machines that udev reads for real."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hbatune.facts.model import (
    Attribute,
    Endpoint,
    Kind,
    Link,
    Machine,
    Medium,
    Missing,
    Protocol,
    Reason,
)
from tests.hosts import machines, traps
from tests.hosts.namespace import gather_in
from tests.hosts.tree import Controller, Described, Disk, Function, Namespace

Build = Callable[[Described], Path]

ASKED = ("queue/scheduler", "queue/nr_requests", "device/queue_depth", "queue/iosched/*")


def of(machine: Machine) -> dict[str, Endpoint]:
    return {endpoint.target: endpoint for endpoint in machine.endpoints}


@pytest.fixture
def lab(built: Build) -> Machine:
    return gather_in(built(machines.lab()), ASKED)


def test_endpoints_have_hardware(lab: Machine) -> None:
    disks = {f"sd{letter}" for letter in "abcdefghijk"} | {"vda", "mmcblk0"}
    assert set(of(lab)) == disks | {"nvme0n1", "nvme1c1n1", "nvme1c2n1", "nvme1n1"}


def test_endpoints_are_classified(lab: Machine) -> None:
    assert {
        name: (endpoint.family, endpoint.protocol, endpoint.medium)
        for name, endpoint in of(lab).items()
    } == {
        "sda": ("megaraid_sas", Protocol.VOLUME, Medium.SSD),
        "sdb": ("megaraid_sas", Protocol.SATA, Medium.SSD),
        "sdc": ("megaraid_sas", Protocol.NVME, Medium.NVME),
        "sdd": ("megaraid_sas", Protocol.SAS, Medium.HDD),
        "sde": ("mptsas", Protocol.SAS, Medium.HDD),
        "sdf": ("mptsas", Protocol.SATA, Medium.SSD),
        "sdg": ("sym53c8xx", Protocol.SPI, Medium.HDD),
        "sdh": ("virtio_scsi", Protocol.VIRTIO, Medium.SSD),
        "sdi": ("vmw_pvscsi", Protocol.VIRTUAL, Medium.SSD),
        "sdj": ("ahci", Protocol.SATA, Medium.SSD),
        "sdk": ("scsi_debug", Protocol.VIRTUAL, Medium.SSD),
        "vda": ("virtio_blk", Protocol.VIRTIO, Medium.SSD),
        "mmcblk0": ("unknown", Protocol.UNKNOWN, Medium.SSD),
        "nvme0n1": ("nvme", Protocol.NVME, Medium.NVME),
        "nvme1c1n1": ("nvme", Protocol.NVME, Medium.NVME),
        "nvme1c2n1": ("nvme", Protocol.NVME, Medium.NVME),
        "nvme1n1": ("nvme", Protocol.NVME, Medium.NVME),
    }
    assert [name for name, endpoint in of(lab).items() if endpoint.tri_mode] == ["sdc"]


def test_ids_hold_name_and_path(lab: Machine) -> None:
    endpoints = of(lab)
    assert endpoints["sda"].id == "naa.600605b000000001@0000:01:00.0/scsi-2:0:0"
    assert endpoints["sdg"].id == "SEAGATE-ST1200MM0088-SER123@0000:03:01.0/scsi-0:0:0"
    assert endpoints["sdk"].id == "naa.5000c500a1b2c3d4@adapter0/scsi-0:0:0"
    assert endpoints["nvme0n1"].id == "eui.0025385b71b00c6f@0000:04:00.0"
    assert endpoints["nvme1c2n1"].id == "uuid.6c5f@0000:06:00.0"
    assert endpoints["nvme1n1"].id == "uuid.6c5f"
    assert endpoints["vda"].id == "root_disk@0000:00:06.0"


def test_endpoint_ids_are_unique(lab: Machine) -> None:
    ids = [endpoint.id for endpoint in lab.endpoints]
    assert len(set(ids)) == len(ids)


def test_duplicate_ids_get_device_suffix(built: Build) -> None:
    spaces = tuple(
        Namespace(Disk(f"nvme3n{n}", scheduler="[none]", tags=1023), "eui.01") for n in (1, 2)
    )
    function = Function("0000:04:00.0", "nvme", controller=Controller("nvme3", spaces))
    endpoints = of(gather_in(built(Described((function,)))))
    assert {name: endpoint.id for name, endpoint in endpoints.items()} == {
        "nvme3n1": "eui.01@0000:04:00.0~nvme3n1",
        "nvme3n2": "eui.01@0000:04:00.0~nvme3n2",
    }


def test_depth_caps_refine_can_queue(lab: Machine) -> None:
    endpoints = of(lab)
    assert endpoints["sda"].depth_cap == 975
    assert endpoints["sdh"].depth_cap == 128
    assert endpoints["sdj"].depth_cap == 31
    assert isinstance(endpoints["nvme0n1"].depth_cap, Missing)


def test_requested_attributes_report_writability(lab: Machine) -> None:
    attributes = of(lab)["sdg"].attributes
    assert attributes["device/queue_depth"] == Attribute("16", writable=False)
    assert attributes["queue/nr_requests"] == Attribute("256", writable=True)
    assert attributes["queue/iosched/fifo_batch"] == Attribute("16", writable=True)
    assert "size" not in attributes
    assert len(attributes) == 3 + 7


def test_nvme_heads_map_hidden_paths(lab: Machine) -> None:
    endpoints = of(lab)
    head, path = endpoints["nvme1n1"], endpoints["nvme1c1n1"]
    assert (head.kind, head.paths) == (Kind.MAP, ("nvme1c1n1", "nvme1c2n1"))
    assert (head.device_node, head.adapter) == ("/dev/nvme1n1", None)
    assert (path.kind, path.map, path.device_node) == (Kind.PATH, "nvme1n1", None)
    assert (path.adapter, path.controller) == ("0000:05:00.0", "nvme1")
    assert path.mounts == head.mounts == ("/data",)
    assert not path.holders
    assert endpoints["nvme0n1"].kind is Kind.DISK
    assert (endpoints["nvme0n1"].tags, endpoints["nvme0n1"].hw_queues) == (1023, 2)


def test_mounts_cover_partitions_lvm_swap(lab: Machine) -> None:
    endpoints = of(lab)
    assert endpoints["sda"].mounts == ("/boot", "/srv/with blank", "[SWAP]")
    assert endpoints["sda"].holders == ("dm-0",)
    assert not endpoints["sdb"].mounts
    assert not endpoints["sdb"].holders


def test_adapters_report_link_and_versions(lab: Machine) -> None:
    adapters = {adapter.target: adapter for adapter in lab.adapters}
    megaraid = adapters["0000:01:00.0"]
    assert megaraid.link == Link(8.0, 4, 8.0, 8)
    assert (megaraid.numa_node, megaraid.driver_version) == (1, "07.719.03.00-rc1")
    assert megaraid.firmware == Missing(Reason.ABSENT, 2)
    assert adapters["0000:02:00.0"].firmware == "00.01.46.00"
    assert adapters["0000:03:01.0"].link is None
    assert adapters["0000:03:01.0"].numa_node is None
    virtio = adapters["0000:00:04.0"]
    assert (virtio.family, virtio.driver, virtio.hw_queues) == ("virtio_scsi", "virtio_scsi", 2)
    nvme = adapters["0000:04:00.0"]
    assert (nvme.controller, nvme.firmware, nvme.hw_queues) == ("nvme0", "8.0.2", 2)
    assert nvme.pci is not None
    assert nvme.pci.class_code == 0x010802
    ahci = adapters["0000:00:1f.2"]
    assert [host.name for host in ahci.hosts] == ["host5", "host6", "host7"]
    assert ahci.link is not None
    assert ahci.link.speed == Missing(Reason.UNPARSABLE, text="Unknown")
    assert ahci.link.width == Missing(Reason.UNPARSABLE, text="0")
    assert adapters["host8"].pci is None
    assert adapters["host8"].family == "scsi_debug"


def test_empty_adapter_is_listed(built: Build) -> None:
    function = machines.lab().functions[0]
    empty = replace(function, hosts=(replace(function.hosts[0], luns=()),))
    machine = gather_in(built(Described(functions=(empty,))))
    assert machine.endpoints == ()
    assert [adapter.family for adapter in machine.adapters] == ["megaraid_sas"]


def test_multipath_members_are_paths(built: Build) -> None:
    endpoints = of(gather_in(built(machines.multipath())))
    upper, path = endpoints["dm-0"], endpoints["sda"]
    assert set(endpoints) == {"sda", "sdb", "sdc", "sdd", "dm-0", "dm-1"}
    assert (upper.kind, upper.paths, upper.id) == (Kind.MAP, ("sda", "sdc"), "mpath-36000")
    assert (upper.protocol, upper.medium, upper.model) == (Protocol.SAS, Medium.SSD, path.model)
    assert (path.kind, path.map, path.holders) == (Kind.PATH, "dm-0", ("dm-0",))
    assert path.mounts == upper.mounts == ("/srv",)
    assert endpoints["sdb"].mounts == ()
    assert endpoints["sda"].id.partition("@")[0] == endpoints["sdc"].id.partition("@")[0]
    assert endpoints["sda"].id != endpoints["sdc"].id


def test_hostile_names_are_printable(built: Build) -> None:
    machine = gather_in(built(machines.hostile()))
    assert len(machine.endpoints) == 4
    for endpoint in machine.endpoints:
        for text in (endpoint.id, endpoint.vendor, endpoint.model, endpoint.revision):
            assert text.isprintable()
    assert machine.adapters[0].product == r"HBA\x1b[2J\u202e"
    endpoints = of(machine)
    assert endpoints["sda"].model == r"\x1b]0;owned\x07model"
    assert endpoints["sdz"].id == r"t10.ATA_X\x1b_Y@0000:01:00.0/scsi-0:9:0"
    assert endpoints["sdc"].model == r"back\\slash"


def test_missing_values_have_distinct_reasons(built: Build) -> None:
    machine = gather_in(built(machines.troubled()), ("queue/nr_requests", "queue/scheduler"))
    endpoints = of(machine)
    absent = Missing(Reason.ABSENT, 2)
    assert endpoints["sda"].attributes["queue/nr_requests"] == absent
    assert (endpoints["sda"].tags, endpoints["sda"].zoned) == (absent, absent)
    assert endpoints["sdb"].attributes["queue/nr_requests"] == Missing(Reason.UNREADABLE, 5)
    assert endpoints["sdb"].rotational == Missing(Reason.UNPARSABLE, text="maybe")
    assert endpoints["sdb"].medium is Medium.UNKNOWN
    assert endpoints["sdd"].zoned is True
    assert endpoints["sdg"].id == "SEAGATE-ST1200MM0088-SER123@0000:01:00.0/scsi-2:6:0"
    host = endpoints["sda"].host
    assert host is not None
    assert host.hw_queues == absent
    assert host.cmd_per_lun == Missing(Reason.UNPARSABLE, text="few")
    link = machine.adapters[0].link
    assert link is not None
    assert link.width == Missing(Reason.UNPARSABLE, text="63?")


def test_blocked_device_queue_is_untouched(built: Build) -> None:
    blocked_disk = of(gather_in(built(machines.troubled()), ASKED))["sdc"]
    why = Missing(Reason.UNREADABLE, text="device state is blocked")
    assert blocked_disk.attributes["queue/scheduler"] == why
    assert blocked_disk.attributes["device/queue_depth"] == Attribute("64", writable=True)
    assert (blocked_disk.state, blocked_disk.tags) == ("blocked", why)


def test_only_removed_medium_hides_drive(built: Build) -> None:
    endpoints = of(gather_in(built(machines.troubled())))
    assert endpoints["sdf"].size == 0
    assert "sde" not in endpoints


def test_unknown_host_is_listed(built: Build) -> None:
    machine = gather_in(built(machines.troubled()))
    stranger = of(machine)["sdh"]
    assert (stranger.protocol, stranger.family) == (Protocol.UNKNOWN, "scsi")
    assert stranger.depth_cap == Missing(Reason.UNREADABLE, 5)
    assert machine.adapters[-1].driver == Missing(Reason.ABSENT, 2)


def test_serial_file_is_last_resort(built: Build) -> None:
    endpoints = of(gather_in(built(traps.serial_file())))
    assert endpoints["sda"].id == "SEAGATE-MODEL-ZX_42@0000:01:00.0/scsi-1:3:0"
    assert endpoints["sdb"].id == "SEAGATE-MODEL-SER123@0000:01:00.0/scsi-1:4:0"


def test_stuck_disk_costs_one_queue(built: Build) -> None:
    endpoints = of(gather_in(built(machines.stuck()), ASKED, deadline=3.0))
    timed_out = Missing(Reason.UNREADABLE, 110)
    assert endpoints["sdba"].attributes["queue/nr_requests"] == timed_out
    assert endpoints["sdba"].attributes["queue/scheduler"] == timed_out
    assert endpoints["sdba"].attributes["device/queue_depth"] == Attribute("64", writable=True)
    assert endpoints["sdba"].id == "naa.b0@0000:01:00.0/scsi-2:0:0"
    healthy = [endpoint for endpoint in endpoints.values() if endpoint.target != "sdba"]
    assert len(healthy) == 3
    for endpoint in healthy:
        assert endpoint.attributes["queue/nr_requests"] == Attribute("256", writable=True)


def test_fully_stuck_adapter_is_abandoned(built: Build) -> None:
    endpoints = of(gather_in(built(machines.stuck(hung=24)), ASKED, deadline=3.0))
    hung = [endpoint for endpoint in endpoints.values() if endpoint.target.startswith("sdb")]
    assert len(hung) == 24
    reasons = [endpoint.attributes["queue/nr_requests"] for endpoint in hung]
    assert all(isinstance(reason, Missing) and reason.errno == 110 for reason in reasons)
    assert any(isinstance(reason, Missing) and reason.text for reason in reasons)
    assert endpoints["sdga"].attributes["queue/nr_requests"] == Attribute("256", writable=True)


def test_all_512_luns_are_listed(built: Build) -> None:
    machine = gather_in(built(machines.build_many_luns(512)), ("queue/nr_requests",))
    assert len(machine.endpoints) == 512
    assert len({endpoint.id for endpoint in machine.endpoints}) == 512
    assert {endpoint.attributes["queue/nr_requests"] for endpoint in machine.endpoints} == {
        Attribute("256", writable=True)
    }
