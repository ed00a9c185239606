"""The routes in ids: no number that a boot assigns, and something to fall back on."""

import re

import pytest

from hbatune.facts.attributes import ABSENT, Attributes
from hbatune.facts.model import Attribute, Missing, Reason
from hbatune.facts.routes import (
    Branch,
    Routes,
    find_port_name_file,
    list_route_attributes,
    parse_branch,
    parse_place,
)

ROOT = "/sys/devices/pci0000:00"
PCI = f"{ROOT}/0000:00:03.0/0000:03:00.0"
UNREADABLE = Missing(Reason.UNREADABLE, 5)


def make_attributes(**texts: str) -> Attributes:
    return {name: Attribute(text, writable=False) for name, text in texts.items()}


def sas(boot: int) -> str:
    end = f"end_device-{boot}:0:{boot + 4}"
    return f"{PCI}/host{boot}/port-{boot}:0/{end}/target{boot}:0:{boot}/{boot}:0:{boot}:2/block/sda"


def iscsi(boot: int) -> str:
    above = f"/sys/devices/platform/host{boot}/session{boot + 2}"
    return f"{above}/target{boot}:0:0/{boot}:0:0:7/block/sda"


def route(
    path: str, read: dict[str, Attributes] | None = None, other_paths: tuple[str, ...] = ()
) -> str:
    place = parse_place(path)
    branches = [place.branch, *(parse_branch(other_path) for other_path in other_paths)]
    attributes_by_path = read or {}
    own_attributes = attributes_by_path.get(path, {})
    return Routes(dict.fromkeys(branches), attributes_by_path).of_disk(path, place, own_attributes)


def end_device(path: str) -> str:
    port = parse_place(path).branch.sas_port
    assert port is not None
    return port


@pytest.mark.parametrize("boot", [0, 7])
def test_sas_route_uses_drive_address(boot: int) -> None:
    read = {end_device(sas(boot)): make_attributes(sas_address="0x5000c500a1b2c3d5")}
    assert route(sas(boot), read) == "0000:03:00.0/sas-0x5000c500a1b2c3d5-lun-2"


@pytest.mark.parametrize("address", [ABSENT, UNREADABLE, Attribute("0x0000000000000000", False)])
def test_addressless_sas_route_uses_place(
    address: Attribute | Missing,
) -> None:
    read: dict[str, Attributes] = {end_device(sas(3)): {"sas_address": address}}
    assert route(sas(3), read) == "0000:03:00.0/scsi-0:3:2"


@pytest.mark.parametrize("boot", [1, 5])
def test_fc_route_uses_array_port(boot: int) -> None:
    path = f"{PCI}/host{boot}/rport-{boot}:0-9/target{boot}:0:3/{boot}:0:3:12/block/sde"
    name = make_attributes(**{find_port_name_file(parse_place(path)): "0x500601613b240f3a"})
    assert route(path, {path: name}) == "0000:03:00.0/fc-0x500601613b240f3a-lun-12"
    assert route(path) == "0000:03:00.0/scsi-0:3:12"


def test_npiv_route_names_virtual_port() -> None:
    host = f"{PCI}/host5/vport-5:0-0/host6"
    path = f"{host}/rport-6:0-1/target6:0:0/6:0:0:1/block/sdf"
    name = make_attributes(**{find_port_name_file(parse_place(path)): "0x5006016"})
    host_attributes = {f"{host}/fc_host/host6": make_attributes(port_name="0x2101")}
    other_paths = (f"{PCI}/host5",)
    assert route(path, {path: name} | host_attributes, other_paths).endswith(
        "/vport-0x2101-fc-0x5006016-lun-1"
    )
    assert route(path, {path: name}, other_paths).endswith("/host-1-fc-0x5006016-lun-1")


@pytest.mark.parametrize("boot", [1, 9])
def test_iscsi_route_uses_portal(boot: int) -> None:
    path = iscsi(boot)
    session = parse_place(path).branch.session
    assert session is not None
    number = session.rpartition("session")[2]
    connection = f"{session}/connection{number}:0/iscsi_connection/connection{number}:0"
    of_session = f"{session}/iscsi_session/session{number}"
    read = {
        of_session: make_attributes(targetname="iqn.2003-01.org.x:disk", ifacename="default"),
        connection: make_attributes(persistent_address="10.0.0.1", persistent_port="3260"),
    }
    assert set(list_route_attributes([parse_place(path).branch])) == set(read)
    portal_route = "iscsi/ip-10.0.0.1:3260-iscsi-iqn.2003-01.org.x:disk-lun-7"
    assert route(path, read) == portal_route
    over = read | {
        of_session: make_attributes(targetname="iqn.2003-01.org.x:disk", ifacename="eth1")
    }
    assert route(path, over) == portal_route.replace("ip-", "iface-eth1-ip-", 1)
    assert route(path, {of_session: read[of_session]}) == "iscsi/iscsi-iqn.2003-01.org.x:disk-lun-7"
    other_paths = (f"/sys/devices/platform/host{boot + 1}/session99",)
    assert route(path, {}, other_paths) == "iscsi/host-0-scsi-0:0:7"


def test_ata_route_uses_port_number() -> None:
    above = f"{ROOT}/0000:00:1f.2"
    other_paths = (f"{above}/ata8/host9", f"{above}/ata6/host7")
    for target, more in (("0:0:0", ""), ("0:1:0", "-scsi-0:1:0")):
        bus = target.rpartition(":")[0]
        path = f"{above}/ata7/host8/target8:{bus}/8:{target}/block/sdb"
        read = {f"{above}/ata7/ata_port/ata7": make_attributes(port_no="3")}
        assert route(path, read, other_paths) == f"0000:00:1f.2/ata-3{more}"
        assert route(path, {}, other_paths) == f"0000:00:1f.2/host-1-scsi-{target}"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (f"{PCI}/host4/target4:2:0/4:2:0:0/block/sda", "0000:03:00.0/scsi-2:0:0"),
        (f"{PCI}/nvme/nvme4/nvme2n1", "0000:03:00.0"),
        (f"{PCI}/nvme/nvme4/nvme0c2n1", "0000:03:00.0"),
        (f"{ROOT}/0000:00:02.0/virtio1/block/vda", "0000:00:02.0"),
        ("/sys/devices/platform/a0.mmio/virtio3/block/vda", "a0.mmio"),
        (
            "/sys/devices/virtual/net/eth0.100/ctlr_3/host14/rport-14:0-0/target14:0:0/14:0:0:1"
            "/block/sda",
            "eth0.100/scsi-0:0:1",
        ),
        (
            "/sys/devices/platform/a0.mmio/virtio3/host2/target2:0:0/2:0:0:1/block/sda",
            "a0.mmio/scsi-0:0:1",
        ),
        (
            "/sys/devices/pseudo_0/adapter0/host5/target5:0:0/5:0:0:0/block/sdf",
            "adapter0/scsi-0:0:0",
        ),
        (
            f"{ROOT}/0000:00:14.0/usb2/2-1/2-1.4/2-1.4:1.0/host4/target4:0:0/4:0:0:0/block/sdb",
            "0000:00:14.0-usb-0:1.4:1.0/scsi-0:0:0",
        ),
        ("/sys/devices/platform/mmc0/mmc0:1234/block/mmcblk3", "mmc0:1234"),
        ("/sys/devices/vbd-51712/block/xvda", "vbd-51712"),
    ],
)
def test_bus_routes_match_place(path: str, expected: str) -> None:
    assert route(path) == expected


FABRIC = "/sys/devices/virtual/nvme-fabrics/ctl"


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("traddr=10.0.0.1,trsvcid=4420,src_addr=10.0.0.9", "10.0.0.1:4420/nqn.2014-08.x"),
        (
            "traddr=nn-0x1:pn-0x2,host_traddr=nn-0x3:pn-0x4",
            "nn-0x1:pn-0x2-nn-0x3:pn-0x4/nqn.2014-08.x",
        ),
        ("", "nqn.2014-08.x"),
    ],
)
def test_fabrics_route_uses_connection(address: str, expected: str) -> None:
    for number in (1, 6):
        controller_path = f"{FABRIC}/nvme{number}"
        read = {
            controller_path: make_attributes(
                transport="tcp", address=address, subsysnqn="nqn.2014-08.x"
            )
        }
        assert route(f"{controller_path}/nvme0c{number}n1", read) == f"nvme-tcp/{expected}"
        routes = Routes([parse_branch(controller_path)], read)
        assert routes.of_control(controller_path) == f"controller-0@nvme-tcp/{expected}"
    assert route(f"{FABRIC}/nvme1/nvme0c1n1") == "nvme-fabrics"


def test_hosts_rank_within_adapter() -> None:
    above = f"{ROOT}/0000:00:1f.2"
    hosts = [f"{above}/ata{n}/host{n}" for n in (11, 9, 10)]
    branches: list[Branch] = [parse_branch(host) for host in hosts]
    routes = Routes([*branches, parse_branch(f"{PCI}/nvme/nvme4")], {})
    ids = [routes.of_control(host) for host in sorted(hosts, key=lambda path: int(path[-1]))]
    assert ids == [f"host-{rank}@0000:00:1f.2" for rank in (1, 2, 0)]
    assert routes.of_control(f"{PCI}/nvme/nvme4") == "controller-0@0000:03:00.0"


def test_hostile_subsystem_name_preserves_id() -> None:
    controller_path = f"{FABRIC}/nvme1"
    read = {
        controller_path: make_attributes(
            transport="tcp", address="traddr=a", subsysnqn="nqn@x/y ~\x1b\n"
        )
    }
    disk_route = route(f"{controller_path}/nvme1n1", read)
    assert re.fullmatch(r"nvme-tcp/a/[^@/~]+", disk_route)
    assert disk_route.isprintable()
