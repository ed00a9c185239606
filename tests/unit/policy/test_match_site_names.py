"""What names in [site] mean: links, any spelling of a WWN, a map's paths; or nothing."""

import pytest
from msgspec.structs import replace

from hbatune.facts.model import Kind
from hbatune.policy.config import Site, SiteAdapter, SiteArray, UnmatchedName
from hbatune.policy.match import (
    SiteNames,
    expand_site_for_udev,
    list_unmatched_names,
    resolve_site_links,
)
from tests.unit.machines import endpoint, machine

SDA = endpoint(id="naa.5000c500a1b2c3d4@0000:01:00.0/sas-0x5000c500a1b2c3d5-lun-0")
NVME = endpoint(target="nvme0n1", id="eui.0025385b71b00c6f@0000:04:00.0", adapter="0000:04:00.0")
NAMED = endpoint(target="sdc", id="SEAGATE-ST1-ZA1x@0000:01:00.0/scsi-0:1:0")
HERE = machine(SDA, NVME, NAMED)


@pytest.mark.parametrize(
    "name",
    [
        "naa.5000c500a1b2c3d4",
        "NAA.5000C500A1B2C3D4",
        "5000C500A1B2C3D4",
        "0x5000c500a1b2c3d4",
        "wwn-0x5000c500A1B2c3d4",
        "/dev/disk/by-id/wwn-0x5000c500a1b2c3d4",
        "/dev/disk/by-id/scsi-35000c500a1b2c3d4",
        "NAA.5000C500A1B2C3D4@0000:01:00.0/sas-0x5000c500a1b2c3d5-lun-0",
    ],
)
def test_wwn_spelling_is_irrelevant(name: str) -> None:
    assert SiteNames(HERE).meant([name]) == {SDA.id}


def test_nvme_and_serial_names_match() -> None:
    for name in ("EUI.0025385B71B00C6F", "nvme-eui.0025385b71b00c6f", "0025385b71b00c6f"):
        assert SiteNames(HERE).meant([name]) == {NVME.id}
    assert SiteNames(HERE).meant(["seagate-st1-za1X"]) == {NAMED.id}


def test_kernel_names_are_case_sensitive() -> None:
    assert SiteNames(HERE).meant(["SDA"]) == frozenset()
    assert SiteNames(HERE).meant(["sda", "/dev/nvme0n1"]) == {SDA.id, NVME.id}


@pytest.mark.parametrize("name", ["dm-0", "mpath-35000c500a1b2c3d4", "0x5000C500A1B2C3D4"])
def test_map_name_includes_paths(name: str) -> None:
    above = endpoint(
        target="dm-0", id="mpath-35000c500a1b2c3d4", kind=Kind.MAP, adapter=None, paths=("sda",)
    )
    path = replace(SDA, kind=Kind.PATH, map="dm-0")
    assert SiteNames(machine(path, above, NVME)).meant([name]) == {path.id, above.id}


LINKS = {
    "/dev/disk/by-id/a": ("sda",),
    "/dev/mapper/vg-root": ("dm-7",),
    "/dev/mapper/m": ("dm-0",),
    "/dev/nvme0n1": ("nvme0n1",),
    "md127": ("sda", "nvme0n1"),
    "/srv": ("sda", "sdz"),
}


def follow(name: str) -> tuple[str, ...]:
    return LINKS.get(name, (name,))


def test_links_and_stacks_resolve_to_disks() -> None:
    site = Site(
        exclude=("/dev/disk/by-id/a", "/dev/disk/by-id/later", "/dev/mapper/vg-root"),
        array=(SiteArray("x", 1, targets=("/dev/disk/by-id/a", "md127")),),
        members={"/dev/disk/by-id/a": 4},
        uses={"oracle-asm": ("/srv",)},
    )
    led = resolve_site_links(HERE, site, follow)
    assert led.exclude == ("sda", "/dev/disk/by-id/later", "/dev/mapper/vg-root")
    assert led.array[0].targets == ("sda", "sda", "nvme0n1")
    assert led.uses == {"oracle-asm": ("sda",)}
    assert led.members == {"sda": 4}
    assert [name.name for name in list_unmatched_names(HERE, led)] == list(site.exclude[1:])


def test_boot_rules_include_linked_ids() -> None:
    above = endpoint(target="dm-0", id="mpath-x", kind=Kind.MAP, adapter=None, paths=("sda",))
    host = machine(replace(SDA, kind=Kind.PATH, map="dm-0"), NVME, above)
    of = {
        "/dev/disk/by-id/a": (SDA.id,),
        "/dev/mapper/m": ("mpath-x", SDA.id),
        "dm-0": ("mpath-x", SDA.id),
        "nvme0n1": (),
        "/dev/nvme0n1": (),
        "md127": (NVME.id, SDA.id),
        "/dev/disk/by-id/later": (),
    }
    for name, ids in of.items():
        assert expand_site_for_udev(host, Site(exclude=(name,)), follow).exclude == (name, *ids)


def test_unmatched_names_show_key() -> None:
    site = Site(
        exclude=("sda", "sdz", "0000:01:00.0", "host0"),
        array=(
            SiteArray("db", 1, targets=("sda", "naa.1")),
            SiteArray("here", 1, vendor=SDA.vendor, model=f"{SDA.model[:2]}*"),
            SiteArray("mistyped", 1, vendor="DGG", model=SDA.model),
            SiteArray("other", 1, vendor=SDA.vendor, model="VRAID"),
        ),
        members={"naa.2": 4},
        adapter={"0000:01:00.0": SiteAdapter("read"), "0000:99:00.0": SiteAdapter("set")},
    )
    assert list_unmatched_names(HERE, site) == (
        UnmatchedName("exclude", "sdz"),
        UnmatchedName("targets of array db", "naa.1"),
        UnmatchedName("members", "naa.2"),
        UnmatchedName("adapter", "0000:99:00.0"),
        UnmatchedName("vendor and model of array mistyped", f"DGG {SDA.model}"),
        UnmatchedName("vendor and model of array other", f"{SDA.vendor} VRAID"),
    )
    assert list_unmatched_names(HERE, Site()) == ()
