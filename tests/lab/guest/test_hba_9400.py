"""The main job on an HBA 9400, by its real driver: found, planned, applied, put back, reset."""

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.lab.guest import tri_mode
from tests.lab.guest.command import configure, hbatune, writes
from tests.lab.guest.kit import wait_a_moment
from tests.lab.guest.main_job import CARD_ALONE, apply_and_back, expected, list_disk_kinds
from tests.lab.guest.service import QUIET, Journal, running
from tests.lab.guest.tri_mode import Card, busy, loaded
from tests.lab.guest.values import cat, everything, put, put_back

KERNELS = ("6.12",)
TOPOLOGY = "hba-9400"
OWN = {"SEAGATE": 254, "ATA": 32, "NVMe": 128}
"""The depths that the driver takes where the firmware names none, by vendor."""
SHALLOW = 16
"""A depth that the firmware names in some tests, below what the profile wants."""


@pytest.fixture(autouse=True)
def one_profile() -> Iterator[None]:
    configure(CARD_ALONE)
    yield
    configure("")


@pytest.fixture
def shallow() -> Iterator[Card]:
    """The card with firmware that names small depths, which the driver has taken."""
    with Card() as card:
        for name in ("depth_sas", "depth_nvme"):
            card.set(name, SHALLOW)
        try:
            with loaded():
                yield card
        finally:
            for name in ("depth_sas", "depth_nvme"):
                card.set(name, 0)
    with loaded():  # the finally of the one above has loaded it while they still were small
        assert tri_mode.depths() == own_depths()


def own_depths() -> Mapping[str, int]:
    return {disk: OWN[cat(disk, "device/vendor")] for disk in tri_mode.disks()}


def host() -> Path:
    """The card's SCSI host."""
    [file] = Path("/sys/class/scsi_host").glob("host*/ioc_reset_count")
    return file.parent


def resets() -> int:
    """How often the driver has reset the card."""
    return int((host() / "ioc_reset_count").read_text())


def test_card_name_is_listed() -> None:
    [card] = [adapter for adapter in hbatune("list", "--json").json["adapters"] if is_ours(adapter)]
    assert card["product"] == "HBA 9400-16i"
    assert card["document"] is None, "no document speaks of it"
    listing = hbatune("list").out
    assert "mpt3sas  HBA 9400-16i" in listing
    assert "8 GT/s x8" in listing


def is_ours(row: Mapping[str, object]) -> bool:
    return row["family"] == "mpt3sas"


def test_drives_have_expected_kind() -> None:
    assert len(tri_mode.disks()) == 6
    assert list_disk_kinds() == expected()
    for disk in tri_mode.of("NVMe"):
        assert "/target" in str((Path("/sys/block") / disk / "device").resolve())
        assert "/end_device" not in str((Path("/sys/block") / disk / "device").resolve())


def test_drives_start_with_driver_depths() -> None:
    assert tri_mode.depths() == own_depths()


def test_apply_is_idempotent_and_reversible(tmp_path: Path) -> None:
    def again() -> None:
        assert writes("apply", "--profile", "oltp", "--no-probe", log=tmp_path / "strace") == []

    apply_and_back(again)


def verification(*disks: str, more: tuple[str, ...]) -> list[str]:
    """Return the words of an fio that writes to these disks, and reads back what it wrote."""
    files = ":".join(f"/dev/{disk}" for disk in disks)
    job = ["--ioengine=libaio", "--direct=1", "--rw=randwrite", "--size=24m", "--iodepth=8"]
    check = ["--verify=crc32c", "--verify_fatal=1", *more]
    return ["fio", "--name=verify", f"--filename={files}", *job, *check]


def test_written_data_reads_back() -> None:
    """Whatever the list of memory: SAS and SATA by elements and chains, NVMe by pages as well."""
    for disk in (tri_mode.of(vendor)[0] for vendor in OWN):
        words = verification(disk, more=("--bsrange=4k-1m",))
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_running_io_survives_reset() -> None:
    disks, before = [tri_mode.of(vendor)[0] for vendor in OWN], resets()
    written = {disk: writes_of(disk) for disk in disks}
    words = verification(*disks, more=("--bs=256k", "--rate_iops=,20"))  # seconds long
    with Card() as card, subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as fio:
        while any(writes_of(disk) == written[disk] for disk in disks):
            wait_a_moment()
        card.fail()
        output = fio.communicate()[0]
    assert fio.returncode == 0, output
    assert resets() == before + 1


def writes_of(disk: str) -> int:
    """How many writes the disk has completed."""
    return int(cat(disk, "stat").split()[4])


def test_reset_reverts_only_depths() -> None:
    """What docs/families.md says of it: all drives have the firmware's depth again."""
    original = everything()
    for disk in tri_mode.disks():
        put(disk, "device/queue_depth", "7")
        put(disk, "queue/max_sectors_kb", "512")
    lowered, before = everything(), resets()
    with Card() as card, busy(*tri_mode.disks()):
        card.fail()
        while resets() == before or tri_mode.depths() != own_depths():
            wait_a_moment()
    after = everything()
    put_back(original)
    assert {name for name in lowered if after[name] != lowered[name]} == {
        f"{disk}/device/queue_depth" for disk in tri_mode.disks()
    }


@pytest.mark.deadline(600)
def test_daemon_repairs_reset_depths(shallow: Card) -> None:
    assert min(tri_mode.depths().values()) == SHALLOW
    with running(f"{CARD_ALONE}{QUIET}"):
        wanted = {disk: depth for disk, depth in tri_mode.depths().items() if depth > 32}
        assert (
            sorted(cat(disk, "device/vendor") for disk in wanted) == ["NVMe"] * 2 + ["SEAGATE"] * 2
        )
        with Journal() as journal, busy(*wanted):
            for _ in range(2):
                shallow.fail()
                journal.until_all_set(wanted, "queue_depth")
                while not wanted.items() <= tri_mode.depths().items():
                    wait_a_moment()
        status = hbatune("status", "--json")
        assert status.json["status"]["open"] == [], status.out


def test_drive_hotplug_is_followed() -> None:
    before = tri_mode.disks()
    with Card() as card:
        card.plug(7, "vendor=SEAGATE,product=XS960SE70084,rotation_rate=1,serial=HOT7")
        while len(tri_mode.disks()) == len(before):
            wait_a_moment()
        [new] = set(tri_mode.disks()) - set(before)
        card.pull(7)
        while (Path("/sys/block") / new).exists():
            wait_a_moment()
    assert tri_mode.disks() == before
