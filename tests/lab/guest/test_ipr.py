"""The main job on a 57B4, by its real driver: found, planned, applied, put back, reset."""

import errno
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.lab.guest import tri_mode
from tests.lab.guest.command import configure, hbatune, writes
from tests.lab.guest.kit import wait_a_moment
from tests.lab.guest.main_job import CARD_ALONE, apply_and_back
from tests.lab.guest.tri_mode import Card, busy, loaded
from tests.lab.guest.values import cat, everything, put, put_back

KERNELS = ("6.1",)
TOPOLOGY = "power"
OWN = 6
"""The depth that the driver gives every disk."""
MEMBERS = {"IPR-0": 1, "IPR-5": 3, "IPR-6": 4, "IPR-10": 2}
"""The drives in each of the topology's volumes, by the first word of its product."""


@pytest.fixture(autouse=True)
def one_profile() -> Iterator[None]:
    """The lab's own disks stay out of it."""
    configure(CARD_ALONE)
    yield
    configure("")


def volumes() -> Mapping[str, int]:
    """Return the volumes, with the number of drives in each."""
    products = {disk: cat(disk, "device/model").split()[0] for disk in tri_mode.disks()}
    return {disk: MEMBERS[name] for disk, name in products.items() if name in MEMBERS}


def drives() -> list[str]:
    """Return the disks that are in no array."""
    return [disk for disk in tri_mode.disks() if disk not in volumes()]


def host() -> Path:
    """The card's SCSI host."""
    [file] = Path("/sys/class/scsi_host").glob("host*/reset_host")
    return file.parent


def resets() -> int:
    """How often the card has come up since the boot, the first time included."""
    log = subprocess.run(["dmesg"], capture_output=True, text=True, check=True).stdout
    return log.count("IOA initialized")


def vectors() -> Mapping[str, int]:
    """Return the numbers of the card's interrupts, by the names that the driver gives them."""
    name = host().name
    return {
        folder.name: int(folder.parent.name) for folder in Path("/proc/irq").glob(f"*/{name}-*")
    }


def test_card_reports_name_and_document() -> None:
    document = hbatune("list", "--json").json
    [card] = [adapter for adapter in document["adapters"] if adapter["family"] == "ipr"]
    assert card["product"] == "IBM 57B4 SAS RAID"
    assert card["document"] == "57B4 (D4)"
    listing = hbatune("list").out
    assert "IBM 57B4 SAS RAID  57B4 (D4)" in listing
    assert "8 GT/s x8" in listing
    assert "takes 1000 commands" in listing


def test_disks_are_classified_without_members() -> None:
    document = hbatune("list", "--json").json
    disk_kinds = {
        endpoint["target"]: (endpoint["protocol"], endpoint["medium"])
        for endpoint in document["endpoints"]
        if endpoint["family"] == "ipr"
    }
    media = {"0": "ssd", "1": "hdd"}
    assert disk_kinds == {
        disk: ("volume" if disk in volumes() else "sas", media[cat(disk, "queue/rotational")])
        for disk in tri_mode.disks()
    }
    assert sorted(volumes().values()) == sorted(MEMBERS.values())
    assert len(drives()) == 3
    types = [path.read_text().strip() for path in Path("/sys/bus/scsi/devices").glob("*/type")]
    assert types.count("12") == sum(MEMBERS.values())


def test_disks_start_with_driver_depth() -> None:
    assert set(tri_mode.depths().values()) == {OWN}


def test_apply_is_idempotent_and_reversible(tmp_path: Path) -> None:
    def again() -> None:
        assert writes("apply", "--profile", "oltp", "--no-probe", log=tmp_path / "strace") == []
        assert set(tri_mode.depths().values()) == {16}

    apply_and_back(again)


def test_volume_gets_16_per_member() -> None:
    counts = "".join(f"{disk} = {count}\n" for disk, count in volumes().items())
    configure(f"{CARD_ALONE}[site.members]\n{counts}")

    def look() -> None:
        wanted = {disk: 16 * count for disk, count in volumes().items()}
        assert tri_mode.depths() == wanted | dict.fromkeys(drives(), 16)

    apply_and_back(look)


def test_cacheless_card_advice_is_reported() -> None:
    findings = hbatune("check", "--json").json["findings"]
    of_card = [finding for finding in findings if finding["source"].startswith("D4-")]
    assert any("no write cache" in str(finding["evidence"]) for finding in of_card)
    assert not any("battery" in str(finding) for finding in of_card)


def test_raid6_without_cache_is_warning() -> None:
    document = hbatune("list", "--json").json
    levels = {
        endpoint["target"]: endpoint["raid_level"]
        for endpoint in document["endpoints"]
        if endpoint["family"] == "ipr"
    }
    by_level = {levels[disk]: disk for disk in volumes()}
    assert set(by_level) == {"0", "5", "6", "10"}
    assert {levels[disk] for disk in drives()} == {None}
    assert "RAID 6 volume" in hbatune("list").out
    checked = hbatune("check", "--json")
    [finding] = [found for found in checked.json["findings"] if found["id"] == "adapter-cacheless"]
    assert (checked.code, finding["severity"]) == (1, "warning")
    assert finding["facts"]["raid6"] == [by_level["6"]]


def test_vector_count_shows_in_vectors() -> None:
    assert not Path("/sys/module/ipr/parameters/number_of_msix").exists()
    done = hbatune("apply", "--profile", "oltp", "--no-probe", "--module-options", "--json")
    assert done.code == 0, done.out + done.err
    [row] = done.rows(setting="ipr.number_of_msix")
    assert (row["state"], row["current"]) == ("ok", 16)
    assert "does not report the current value" in row["limit"]
    back = hbatune("rollback")
    assert back.code == 0, back.out + back.err


def test_only_data_vectors_move() -> None:
    document = hbatune("list", "--json").json
    roles = {vector["irq"]: vector["role"] for vector in document["vectors"]}
    names = vectors()
    assert len(names) == 16
    assert roles[names[f"{host().name}-0"]] == "admin"
    assert roles[names[f"{host().name}-1"]] == "data"
    plan = hbatune("diff", "--profile", "oltp", "--json")
    assert not plan.rows(target=f"irq{names[f'{host().name}-0']}")
    assert plan.row(f"irq{names[f'{host().name}-1']}", "irq_affinity")["state"] != "fixed"


def test_lone_vector_serves_data() -> None:
    with loaded(number_of_msix=1):
        document = hbatune("list", "--json").json
        [irq] = vectors().values()
        [vector] = [entry for entry in document["vectors"] if entry["irq"] == irq]
        assert vector["role"] == "data"
        plan = hbatune("diff", "--profile", "oltp", "--module-options", "--json")
        [row] = plan.rows(setting="ipr.number_of_msix")
        assert (row["state"], row["current"], row["value"]) == ("drift", 1, 15)
        findings = hbatune("check", "--json").json["findings"]
        [finding] = [finding for finding in findings if finding["id"] == "msix-few"]
        assert (finding["severity"], finding["facts"]["vectors"]) == ("advice", 1)


def verification(*disks: str, more: tuple[str, ...]) -> list[str]:
    """Return the words of an fio that writes to these disks, and reads back what it wrote."""
    files = ":".join(f"/dev/{disk}" for disk in disks)
    job = ["--ioengine=libaio", "--direct=1", "--rw=randwrite", "--size=16m", "--iodepth=16"]
    check = ["--verify=crc32c", "--verify_fatal=1", *more]
    return ["fio", "--name=verify", f"--filename={files}", *job, *check]


def test_written_data_reads_back() -> None:
    for disk in (next(iter(volumes())), drives()[0]):
        words = verification(disk, more=("--bsrange=4k-1m",))
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_running_io_survives_card_fault() -> None:
    disks, before = [*volumes(), drives()[0]], resets()
    words = verification(*disks, more=("--bs=256k", "--rate_iops=,20"))  # seconds long
    with Card() as card, subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as fio:
        written = {disk: writes_of(disk) for disk in disks}
        while any(writes_of(disk) == written[disk] for disk in disks):
            wait_a_moment()
        card.set("fault", "on")
        output = fio.communicate()[0]
    assert fio.returncode == 0, output
    assert resets() == before + 1


def writes_of(disk: str) -> int:
    """How many writes the disk has completed."""
    return int(cat(disk, "stat").split()[4])


@contextmanager
def resetting() -> Iterator[None]:
    """Have the driver reset the card, which takes it two seconds, beside the body."""
    reset = ["tee", str(host() / "reset_host")]
    with subprocess.Popen(reset, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as tee:
        assert tee.stdin is not None
        tee.stdin.write(b"1")
        tee.stdin.close()
        yield
    assert tee.returncode == 0


def test_reset_changes_no_setting() -> None:
    """What docs/families.md says of it."""
    original, before = everything(), resets()
    for disk in tri_mode.disks():
        put(disk, "device/queue_depth", "7")
        put(disk, "queue/nr_requests", "300")
        put(disk, "queue/max_sectors_kb", "128")
    chosen = everything()
    with busy(*tri_mode.disks()):
        with resetting():
            pass
        served = {disk: reads_of(disk) for disk in tri_mode.disks()}
        while any(reads_of(disk) == served[disk] for disk in tri_mode.disks()):
            wait_a_moment()
    after = everything()
    put_back(original)
    assert resets() == before + 1
    assert after == chosen


def reads_of(disk: str) -> int:
    """How many reads the disk has completed."""
    return int(cat(disk, "stat").split()[0])


def test_resetting_card_refuses_vector_moves() -> None:
    """As docs/families.md says."""
    irq = vectors()[f"{host().name}-1"]
    file = Path(f"/proc/irq/{irq}/smp_affinity_list")
    affinity = file.read_text()
    with resetting():
        while (refusal := refused(file, affinity)) is None:
            wait_a_moment()
    assert refusal in (errno.EIO, errno.EPERM)
    assert refused(file, affinity) is None


def refused(file: Path, text: str) -> int | None:
    """Write the text; return the errno with which the kernel refuses it."""
    try:
        file.write_text(text)
    except OSError as error:
        return error.errno
    return None


def test_full_queue_preserves_depth() -> None:
    disk = drives()[0]
    put(disk, "device/queue_depth", "32")
    try:
        with Card() as card:
            card.set("full_at", 4)
            try:
                words = ["fio", "--name=full", f"--filename=/dev/{disk}", "--ioengine=libaio"]
                job = ["--direct=1", "--rw=randread", "--iodepth=32", "--number_ios=500"]
                subprocess.run([*words, *job], stdout=subprocess.DEVNULL, check=True)
            finally:
                card.set("full_at", 0)
        assert tri_mode.depths()[disk] == 32
    finally:
        put(disk, "device/queue_depth", str(OWN))


def test_drive_hotplug_is_followed() -> None:
    before = tri_mode.disks()
    with Card() as card:
        card.plug(20, "vendor=IBM,product=LAB-DRIVE,rotation_rate=1,serial=HOT20")
        while len(tri_mode.disks()) == len(before):
            wait_a_moment()
        [new] = set(tri_mode.disks()) - set(before)
        assert cat(new, "device/queue_depth") == str(OWN)
        card.pull(20)
        while (Path("/sys/block") / new).exists():
            wait_a_moment()
    assert tri_mode.disks() == before
