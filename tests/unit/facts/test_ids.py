"""What ids that were noted earlier mean now: on one machine, in this boot or in another."""

from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from hbatune.act.journal import Entry, Journal, with_current_ids
from hbatune.facts.ids import Renaming, escape_text, is_former, make_stable_name, normalise_name
from hbatune.facts.model import Endpoint, Machine
from hbatune.plan.rows import RevertedValue
from tests.unit.machines import control, endpoint, machine, vector

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


def moved(id: str, *there: Endpoint) -> tuple[str, ...]:
    return Renaming(machine(*there)).that_lasts(id)


def entries(here: Machine, *filed: Entry) -> list[str]:
    return [each.id for each in with_current_ids(Journal("b", filed), Renaming(here)).entries]


def test_boot_numbered_ids_are_former() -> None:
    for id in (
        "naa.5@0000:01:00.0/0:0:1:2",
        "eui.5@0000:04:00.0/nvme0",
        "root_disk@0000:00:06.0/virtio3",
        "naa.5@host8/8:0:0:0",
        "mpt3sas0-msix3@0000:01:00.0/irq34",
        "host0@0000:01:00.0",
        "nvme3",
    ):
        assert is_former(id), id
    for id in (
        "naa.5@0000:01:00.0/sas-0x50-lun-0",
        "naa.5@0000:01:00.0/scsi-0:1:2",
        "eui.5@0000:04:00.0",
        "msix-3@0000:01:00.0",
        "host-0@0000:01:00.0",
        "mpath-36000",
        "naa.5@0000:01:00.0/scsi-0:1:2~0:0:1:2",
    ):
        assert not is_former(id), id


def test_unique_name_identifies_former_disk() -> None:
    one, other = drive("sda", "naa.5a", 7, 3), drive("sdb", "naa.5b", 7, 4)
    assert moved("naa.5a@0000:01:00.0/0:0:1:0", one, other) == (one.id,)
    assert moved("naa.5a@0000:09:00.0/0:0:1:0", one, other) == (one.id,)
    twin = replace(other, id="naa.5a@0000:01:00.0/sas-0x54-lun-0")
    assert moved("naa.5a@0000:01:00.0/0:0:1:0", one, twin) == ("naa.5a@0000:01:00.0/0:0:1:0",)
    path = replace(twin, adapter="0000:02:00.0", id="naa.5a@0000:02:00.0/sas-0x54-lun-0")
    assert moved("naa.5a@0000:02:00.0/0:0:1:0", one, path) == (path.id,)


def test_nameless_disk_needs_same_adapter() -> None:
    here = drive("sda", "unnamed", 7, 3)
    assert moved("unnamed@0000:09:00.0/0:0:1:0", here) == ("unnamed@0000:09:00.0/0:0:1:0",)
    assert moved("unnamed@0000:01:00.0/7:0:3:0", here) == (here.id,)


def test_vector_and_controller_ids_renamed() -> None:
    here = machine(
        controls=(control(target="nvme4", id="controller-0@0000:01:00.0"),),
        vectors=(vector(irq=90, id="msix-1@0000:01:00.0", names=("mpt3sas0-msix1",)),),
    )
    renaming = Renaming(here)
    assert renaming.that_lasts("nvme0@0000:01:00.0") == ("controller-0@0000:01:00.0",)
    assert renaming.that_lasts("mpt3sas0-msix1@0000:01:00.0/irq34") == ("msix-1@0000:01:00.0",)
    assert renaming.that_lasts("mpt3sas0-msix9@0000:01:00.0/irq34") == (
        "mpt3sas0-msix9@0000:01:00.0/irq34",
    )


def test_shared_id_excludes_both_disks() -> None:
    shared = "naa.5@0000:01:00.0/scsi-0:1:0"
    one, two = endpoint(id=f"{shared}~0:0:1:0"), endpoint(target="sdb", id=f"{shared}~1:0:1:0")
    assert moved(shared, one, two) == (one.id, two.id)
    alone = endpoint(id=shared)
    assert moved(one.id, alone) == (shared,)
    reverted = (RevertedValue(shared, "nr_requests", 2048),)
    filed = with_current_ids(
        Journal("b", excluded=(shared,), reverted=reverted), Renaming(machine(one, two))
    )
    assert filed.excluded == (one.id, two.id)
    assert [each.id for each in filed.reverted] == [one.id, two.id]


def test_baseline_follows_disk_despite_name() -> None:
    known, nameless = drive("sda", "naa.5a", 0, 1, 9), drive("sda", "unnamed", 0, 1, 9)
    noted = Entry(known.id, "sda", None, "nr_requests", 64, 256, diskseq=9)
    assert entries(machine(nameless), noted) == [nameless.id]
    assert entries(machine(known), replace(noted, id=nameless.id)) == [known.id]


def test_baseline_ignores_different_disk() -> None:
    noted = Entry("naa.5a@0000:01:00.0/0:0:1:0", "sda", None, "nr_requests", 64, 256)
    assert entries(machine(drive("sda", "naa.5a", 7, 1)), noted) == [noted.id]
    gone = replace(noted, id="naa.5b@0000:01:00.0/sas-0x51-lun-0", diskseq=9)
    assert entries(machine(drive("sda", "naa.5a", 7, 1, 10)), gone) == [gone.id]


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


def test_distinct_names_stay_distinct() -> None:
    names = ("naa.5000c500a1b2c3d4", "naa.5000c500a1b2c3d5", "t10.ATA_X", "ata_x", "mpath-x", "x")
    assert len(set(map(normalise_name, names))) == len(names)
