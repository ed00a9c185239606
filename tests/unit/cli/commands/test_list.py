"""Tests of hbatune/cli/commands/list.py."""

import json

import pytest

from hbatune.cli import main
from hbatune.facts.model import Kind, Medium, PathGroup, Protocol
from hbatune.text.terminal import make_printable
from tests.unit.command_runs import See
from tests.unit.machines import ABSENT, adapter, endpoint, machine


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
    assert main(["list"]) == 0
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
    assert main(["list"]) == 0
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("sda ")]
    assert text in [cell.strip() for cell in line.split("  ")]
    assert main(["list", "--json"]) == 0
    [disk] = json.loads(capsys.readouterr().out)["endpoints"]
    assert (disk["protocol"], disk["medium"]) == (protocol, medium), "as rules match it"


def test_list_shows_map_selection(see: See, capsys: pytest.CaptureFixture[str]) -> None:
    groups = (PathGroup("service-time", True, ("sda",)), PathGroup("service-time", False, ("sdb",)))
    paths = [endpoint(target=name, kind=Kind.PATH, map="dm-0") for name in ("sda", "sdb")]
    shown = {"target": "dm-0", "kind": Kind.MAP, "adapter": None, "paths": ("sda", "sdb")}
    see(machine(*paths, endpoint(**shown, path_groups=groups)))
    assert main(["list"]) == 0
    text = "sas ssd, service-time over 1 of 2 paths, map of sda sdb"
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
