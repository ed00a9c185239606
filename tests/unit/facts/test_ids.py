"""What ids that were noted earlier mean now: on one machine, in this boot or in another."""

from fnmatch import fnmatchcase

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from hbatune.act.journal import Entry, Journal, with_current_ids
from hbatune.boot import lines
from hbatune.facts.ids import Renaming, escape_text, make_stable_name, normalise_name
from hbatune.facts.model import Endpoint, Machine
from hbatune.plan.rows import RevertedValue
from tests.unit.machines import endpoint, machine

BAY = "/sys/devices/pci0000:00/0000:01:00.0/host{0}/target{0}:0:{1}/{0}:0:{1}:0/block/{2}"


def drive(name: str, wwid: str, host: int, target: int, diskseq: int = 1) -> Endpoint:
    """A drive in the bay ``target``, whose id is of its port."""
    return endpoint(
        target=name,
        id=f"{wwid}@0000:01:00.0/sas-0x5{target}-lun-0",
        address=f"{host}:0:{target}:0",
        sysfs=BAY.format(host, target, name),
        diskseq=diskseq,
    )


def moved(id: str, *endpoints: Endpoint) -> tuple[str, ...]:
    return Renaming(machine(*endpoints)).that_lasts(id)


def entries(host: Machine, *filed: Entry) -> list[str]:
    return [entry.id for entry in with_current_ids(Journal("b", filed), Renaming(host)).entries]


def test_shared_id_names_both_disks() -> None:
    shared = "naa.5@0000:01:00.0/scsi-0:1:0"
    first, second = endpoint(id=f"{shared}~0:0:1:0"), endpoint(target="sdb", id=f"{shared}~1:0:1:0")
    assert moved(shared, first, second) == (first.id, second.id)
    alone = endpoint(id=shared)
    assert moved(first.id, alone) == (shared,)
    reverted = (RevertedValue(shared, "nr_requests", 2048),)
    filed = with_current_ids(Journal("b", reverted=reverted), Renaming(machine(first, second)))
    assert [value.id for value in filed.reverted] == [first.id, second.id]


def test_baseline_follows_disk_despite_name() -> None:
    named_disk, nameless = drive("sda", "naa.5a", 0, 1, 9), drive("sda", "unnamed", 0, 1, 9)
    noted = Entry(named_disk.id, "sda", None, "nr_requests", 64, 256, diskseq=9)
    assert entries(machine(nameless), noted) == [nameless.id]
    assert entries(machine(named_disk), replace(noted, id=nameless.id)) == [named_disk.id]


def test_baseline_ignores_different_disk() -> None:
    noted = Entry("naa.5a@0000:01:00.0/0:0:1:0", "sda", None, "nr_requests", 64, 256)
    assert entries(machine(drive("sda", "naa.5a", 7, 1)), noted) == [noted.id]
    foreign_entry = replace(noted, id="naa.5b@0000:01:00.0/sas-0x51-lun-0", diskseq=9)
    assert entries(machine(drive("sda", "naa.5a", 7, 1, 10)), foreign_entry) == [foreign_entry.id]


@given(st.text())
@example("\x1b[31m\x00\n\u202e\\x1b")
def test_escape_is_printable_and_reversible(text: str) -> None:
    escaped = escape_text(text)
    assert escaped.isprintable()
    assert _undone(escaped) == text


@given(st.text(), st.text(), st.text())
def test_stable_name_prints_without_spaces(wwid: str, vendor: str, model: str) -> None:
    name = make_stable_name(wwid, vendor, model)
    assert name.isprintable()
    assert name
    assert " " not in name


def test_stable_name_examples() -> None:
    assert make_stable_name("t10.ATA     QEMU HARDDISK   ") == "t10.ATA_QEMU_HARDDISK"
    assert make_stable_name("", "SEAGATE", " ST12  00 ", "") == "SEAGATE-ST12_00"
    assert make_stable_name(" ") == "unnamed"


def _undone(text: str) -> str:
    """Undo the backslash escapes; what prints without one is itself."""
    done, at = "", 0
    lengths = {"x": 4, "u": 6, "U": 10}
    while at < len(text):
        length = 1 if text[at] != "\\" else lengths.get(text[at + 1], 2)
        piece = text[at : at + length]
        done += piece if length == 1 else piece.encode("ascii").decode("unicode_escape")
        at += length
    return done


@pytest.mark.parametrize(
    "filler",
    [
        *(
            "naa.0000000000000000",
            "naa.5000c50000000000",
            "naa.FFFFFFFFFFFFFFFF",
            f"naa.{'0' * 32}",
        ),
        *(
            "eui.0025380000000000",
            "uuid.00000000-0000-0000-0000-000000000000",
            "0x0000000000000000",
        ),
        *("nvme.1af4--51454d55-00000001", "nvme.1af4-3030302020-51454d55-00000001"),
        *("t10.ATA     QEMU HARDDISK   0000000000", "00000000", "To Be Filled By O.E.M."),
    ],
)
def test_fillers_are_replaced_by_serials(filler: str) -> None:
    assert make_stable_name(filler, "ATA", "MODEL", "SER123") == "ATA-MODEL-SER123"
    assert make_stable_name("", "ATA", "MODEL", filler) == "ATA-MODEL"
    glob_matches = [fnmatchcase(filler, glob) for glob in lines._FILLERS.split("|")]
    assert any(glob_matches) or "." not in filler.partition(" ")[0]


@pytest.mark.parametrize(
    "name",
    [
        *("naa.5000c500a1b2c3d4", "eui.00000000000000000026b7283b12b315", f"naa.6{'0' * 29}a1"),
        *("eui.0025385b71b00c6f", "nvme.1b36-30303041-51454d55-00000001", "t10.ATA  MODEL  S000"),
    ],
)
def test_names_with_zeros_are_names(name: str) -> None:
    assert make_stable_name(name, "ATA", "MODEL") == make_stable_name(name)


def test_distinct_names_stay_distinct() -> None:
    names = ("naa.5000c500a1b2c3d4", "naa.5000c500a1b2c3d5", "t10.ATA_X", "ata_x", "mpath-x", "x")
    assert len(set(map(normalise_name, names))) == len(names)
