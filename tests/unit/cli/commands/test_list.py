"""Tests of hbatune/cli/commands/list.py."""

import json

import pytest
from msgspec.structs import replace

from hbatune.cli import main
from hbatune.facts.model import Endpoint, Kind, Medium, PathGroup, Protocol, Storage
from hbatune.text.terminal import make_printable
from tests.unit.command_runs import See
from tests.unit.machines import ABSENT, adapter, attributes, endpoint, machine, vector


def test_list_shows_identity_and_use(see: See, capsys: pytest.CaptureFixture[str]) -> None:
    see(machine(endpoint(mounts=("/srv",), holders=("dm-0",))))
    assert main(["list", "--json"]) == 0
    [disk] = json.loads(capsys.readouterr().out)["endpoints"]
    assert {"target", "id", "adapter", "family", "medium", "protocol"} <= set(disk)
    assert (disk["vendor"], disk["model"]) == ("SEAGATE", "XS400ME70084")
    assert (disk["mounted"], disk["held"]) == (True, True)
    assert main(["list"]) == 0
    assert "/srv" in capsys.readouterr().out


def test_list_shows_zoned_disk(see: See, capsys: pytest.CaptureFixture[str]) -> None:
    see(machine(endpoint(zoned=True), endpoint(target="sdb", zoned=ABSENT)))
    assert main(["list", "--all"]) == 0
    [line] = [line for line in capsys.readouterr().out.splitlines() if "zoned" in line]
    assert line.split()[0] == "sda"
    assert "sas ssd, zoned" in line
    assert main(["list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["endpoints"][0]["zoned"] is True


@pytest.mark.parametrize(
    ("protocol", "medium", "text"),
    [
        (Protocol.VOLUME, Medium.HDD, "RAID volume"),
        (Protocol.VOLUME, Medium.UNKNOWN, "RAID volume"),
        (Protocol.VOLUME, Medium.SSD, "RAID volume ssd"),
        (Protocol.SAS, Medium.HDD, "sas hdd"),
    ],
)
def test_volume_is_not_called_rotational(
    see: See, capsys: pytest.CaptureFixture[str], protocol: Protocol, medium: Medium, text: str
) -> None:
    see(machine(endpoint(protocol=protocol, medium=medium)))
    assert main(["list", "sda"]) == 0
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("sda ")]
    assert text in [cell.strip() for cell in line.split("  ")]
    assert main(["list", "--json"]) == 0
    [disk] = json.loads(capsys.readouterr().out)["endpoints"]
    assert (disk["protocol"], disk["medium"]) == (protocol, medium), "as rules match it"


@pytest.mark.parametrize(
    ("storage", "model", "text"),
    [
        (Storage.FABRIC, "NetApp ONTAP Controller", "nvme, NetApp ONTAP"),
        (Storage.FABRIC, "IBM     2145", "nvme, IBM SVC"),
        (Storage.FABRIC, "dellemc-powerstore", "nvme, Dell PowerStore"),
        (Storage.FABRIC, "Linux", "nvme, fabric"),
        (Storage.LOCAL, "NetApp ONTAP Controller", "nvme"),
    ],
)
def test_list_names_nvme_array(
    see: See, capsys: pytest.CaptureFixture[str], storage: Storage, model: str, text: str
) -> None:
    nvme = {"protocol": Protocol.NVME, "medium": Medium.NVME}
    see(machine(endpoint(**nvme, storage=storage, model=model)))
    assert main(["list", "sda"]) == 0
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("sda ")]
    assert text in [cell.strip() for cell in line.split("  ")]


def test_list_shows_map_selection(see: See, capsys: pytest.CaptureFixture[str]) -> None:
    groups = (PathGroup("service-time", True, ("sda",)), PathGroup("service-time", False, ("sdb",)))
    paths = [endpoint(target=name, kind=Kind.PATH, map="dm-0") for name in ("sda", "sdb")]
    shown = {"target": "dm-0", "kind": Kind.MAP, "adapter": None, "paths": ("sda", "sdb")}
    see(machine(*paths, endpoint(**shown, path_groups=groups)))
    assert main(["list", "--all"]) == 0
    text = "sas ssd, map of sda sdb (service-time over 1 of 2 paths)"
    assert text in " ".join(capsys.readouterr().out.split())
    assert main(["list", "--json"]) == 0
    [*_, listed] = json.loads(capsys.readouterr().out)["endpoints"]
    assert [group["active"] for group in listed["path_groups"]] == [True, False]


def test_list_names_adapter_product(see: See, capsys: pytest.CaptureFixture[str]) -> None:
    plain = adapter(target="0000:02:00.0")
    described = adapter(product="Broadcom eHBA 9600-24i", document="05-50111-01 (D0)")
    see(machine(adapters=(described, plain)))
    assert main(["list"]) == 0
    output = capsys.readouterr().out
    assert "mpt3sas  Broadcom eHBA 9600-24i  05-50111-01 (D0)" in output
    assert "link 8 GT/s x8" in output
    assert main(["list", "--json"]) == 0
    adapters = json.loads(capsys.readouterr().out)["adapters"]
    assert [(entry["product"], entry["document"]) for entry in adapters] == [
        ("Broadcom eHBA 9600-24i", "05-50111-01 (D0)"),
        ("HBA 9300-8i", None),
    ]


def test_kernel_names_are_escaped(see: See, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "\x1b]0;owned\x07\x1b[31m\r\nX"
    see(machine(endpoint(model=hostile)))
    main(["list"])
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\r" not in out
    assert make_printable(hostile) in out


def mixed_disk(number: int, depth: str = "254", **overrides: object) -> Endpoint:
    medium, model = ((Medium.SSD, "XS3840SE70045"), (Medium.HDD, "ST8000NM000A"))[number % 2]
    address = f"0:0:{number}:0"
    facts = {"target": f"sd{number}", "id": f"naa.{number:016x}@0000:01:00.0", "model": model}
    depths = attributes(device__queue_depth=depth)
    return endpoint(**facts, medium=medium, address=address, attributes=depths, **overrides)


def test_equal_disks_share_line(
    see: See, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    disks = [mixed_disk(number) for number in range(239)]
    see(machine(*disks, mixed_disk(239, "16", mounts=("/srv",))))
    monkeypatch.setattr("hbatune.text.terminal.get_width", lambda stream=None: 80)
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) <= 40
    assert max(map(len, out.splitlines())) <= 80
    assert out.startswith("db1: 240 disks behind 1 adapter\n")
    words = " ".join(out.split())
    assert "120 sas ssd XS3840SE70045 372.6 GiB 254 0 of 120" in words
    assert "119 sas hdd ST8000NM000A 372.6 GiB 254 0 of 119" in words
    assert "1 sas hdd ST8000NM000A 372.6 GiB 16 /srv" in words


def test_all_lists_disks_and_interrupts(see: See, capsys: pytest.CaptureFixture[str]) -> None:
    see(replace(machine(mixed_disk(0), mixed_disk(2)), vectors=(vector(),)))
    assert main(["list"]) == 0
    assert "INTERRUPTS" not in capsys.readouterr().out
    assert main(["list", "--all"]) == 0
    out = capsys.readouterr().out
    assert "INTERRUPTS" in out
    listed = [line.split()[:2] for line in out.splitlines() if line.startswith("sd")]
    assert listed == [["sd0", "0:0:0:0"], ["sd2", "0:0:2:0"]]


def test_ids_are_listed_alone(see: See, capsys: pytest.CaptureFixture[str]) -> None:
    see(machine(mixed_disk(10), mixed_disk(2)))
    assert main(["list", "--ids"]) == 0
    [_, *lines] = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [
        ["sd2", "naa.0000000000000002@0000:01:00.0"],
        ["sd10", "naa.000000000000000a@0000:01:00.0"],
    ]


def lun(target: str, **overrides: object) -> Endpoint:
    return endpoint(target=target, vendor="DGC", model="VRAID", **overrides)


def test_map_is_one_line(see: See, capsys: pytest.CaptureFixture[str]) -> None:
    names = ("sda", "sdb", "sdc", "sdd")
    depths = attributes(device__queue_depth="64")
    paths = []
    for name in names:
        state = "offline" if name == "sdb" else "running"
        paths.append(lun(name, kind=Kind.PATH, map="dm-0", state=state, attributes=depths))
    see(machine(*paths, lun("dm-0", kind=Kind.MAP, adapter=None, paths=names, mounts=("/u01",))))
    assert main(["list"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "db1: 4 paths, 1 map behind 1 adapter" in text
    assert "3 sas ssd, path VRAID 372.6 GiB 64 0 of 3 sda sdc sdd" in text
    assert "1 sas ssd, offline, path VRAID 372.6 GiB 64 - sdb" in text
    assert "1 sas ssd, map, 3 of 4 paths up VRAID 372.6 GiB 254 /u01 dm-0 over sda..sdd (4)" in text


def map_with_paths(number: int) -> tuple[Endpoint, ...]:
    state = "offline" if number == 7 else "running"
    first = lun(f"sd{number}", kind=Kind.PATH, map=f"dm-{number}", state=state)
    second = lun(f"sd{number + 240}", kind=Kind.PATH, map=f"dm-{number}")
    paths = (first.target, second.target)
    return first, second, lun(f"dm-{number}", kind=Kind.MAP, adapter=None, paths=paths)


def test_many_equal_maps_share_line(
    see: See, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    see(machine(*(disk for number in range(240) for disk in map_with_paths(number))))
    monkeypatch.setattr("hbatune.text.terminal.get_width", lambda stream=None: 80)
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) <= 40
    assert max(map(len, out.splitlines())) <= 80
    words = " ".join(out.split())
    assert "239 sas ssd, map, 2 of 2 paths up VRAID" in words
    assert "1 sas ssd, map, 1 of 2 paths up VRAID 372.6 GiB 254 - DISKS dm-7" in words
    assert main(["list", "--all"]) == 0
    assert "map of sd3 " in " ".join(capsys.readouterr().out.split())


def test_json_has_no_values(see: See, capsys: pytest.CaptureFixture[str]) -> None:
    see(machine(mixed_disk(0)))
    assert main(["list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["endpoints"][0]["attributes"] == {}
