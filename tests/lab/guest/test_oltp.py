"""The main job on real drivers: apply, look with plain eyes, apply again, roll back."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.guest.command import JOURNAL, Done, hbatune
from tests.lab.guest.kit import scsi_disks
from tests.lab.guest.values import BLOCK, cat, disks, everything, put, scheduler


@pytest.fixture
def before() -> Iterator[dict[str, str]]:
    """The values before the test, which end as they were whatever the test does."""
    found = everything()
    yield found
    hbatune("rollback")


@pytest.fixture
def applied(before: dict[str, str]) -> Done:
    return hbatune("apply", "--profile", "oltp", "--no-probe", "--json")


def nvme_paths() -> list[str]:
    """Return the disks with NVMe queues of their own: hidden paths, not the head above them."""
    return [disk for disk in disks() if disk.startswith("nvme") and (BLOCK / disk / "mq").exists()]


def test_what_the_plan_says_is_what_the_kernel_says(applied: Done) -> None:
    assert applied.code == 0, applied.err
    paths = {
        "scheduler": "queue/scheduler",
        "nr_requests": "queue/nr_requests",
        "queue_depth": "device/queue_depth",
    }
    settable = [row for row in applied.json["rows"] if row["state"] in ("ok", "drift")]
    assert settable
    for row in settable:
        assert row["outcome"] == ("written" if row["state"] == "drift" else "kept"), row
        if row["setting"] == "scheduler":
            assert scheduler(row["target"]) == row["value"]
        else:
            assert int(cat(row["target"], paths[row["setting"]])) == row["value"], row


def test_nvme_has_no_scheduler_and_its_whole_tag_set(applied: Done) -> None:
    assert len(nvme_paths()) == 3, "one namespace, and one more over two controllers"
    for disk in nvme_paths():
        assert scheduler(disk) == "none"
        assert cat(disk, "queue/nr_requests") == cat(disk, "mq/0/nr_tags")
        row = applied.row(disk, "nr_requests")
        assert row["wanted"] == 2048
        assert "tag set" in row["limit"]


def test_the_visible_head_is_left_to_its_paths(applied: Done) -> None:
    heads = [disk for disk in disks() if re.fullmatch(r"nvme\d+n\d+", disk)]
    hidden = [disk for disk in disks() if re.fullmatch(r"nvme\d+c\d+n\d+", disk)]
    assert len(hidden) == 2
    for head in set(heads) - set(nvme_paths()):
        assert not applied.rows(target=head, state="drift")


@pytest.mark.parametrize(
    "driver",
    ["megaraid_sas", "mptsas", "sym53c8xx", "virtio_scsi", "vmw_pvscsi", "ahci"],
)
def test_behind_an_hba_there_is_a_deadline_scheduler_and_2048_requests(
    driver: str, applied: Done
) -> None:
    found = scsi_disks(driver)
    assert found
    for disk in found:
        assert scheduler(disk) == "mq-deadline"
        assert cat(disk, "queue/nr_requests") == "2048"


def test_depths_are_raised_and_none_is_lowered(before: dict[str, str], applied: Done) -> None:
    for name, text in before.items():
        disk, _, attribute = name.partition("/")
        if attribute == "device/queue_depth":
            assert int(cat(disk, attribute)) >= int(text), name
    raised = [row for row in applied.rows(setting="queue_depth") if row["state"] == "drift"]
    for row in raised:
        assert row["value"] > row["current"]
    for disk in scsi_disks("mptsas"):
        if cat(disk, "queue/rotational") == "0":
            assert int(cat(disk, "device/queue_depth")) >= 64
    for row in applied.rows(setting="queue_depth"):
        if row["wanted"] == 32:
            assert int(cat(row["target"], "device/queue_depth")) >= 32


def test_a_depth_that_nobody_can_set_is_fixed(applied: Done) -> None:
    [disk] = scsi_disks("sym53c8xx")
    row = applied.row(disk, "queue_depth")
    assert (row["state"], row["outcome"]) == ("fixed", None)
    assert not (BLOCK / disk / "device/queue_depth").stat().st_mode & 0o222


def test_diff_finds_drift_before_and_none_after(before: dict[str, str]) -> None:
    assert hbatune("diff", "--profile", "oltp").code == 1
    assert hbatune("apply", "--profile", "oltp", "--no-probe").code == 0
    after = hbatune("diff")
    assert after.code == 0, "the applied profile is the active one\n" + after.out + after.err


def test_a_second_apply_writes_nothing(applied: Done, tmp_path: Path) -> None:
    log = tmp_path / "strace"
    watch = ("strace", "-f", "-y", "-e", "trace=openat,open,write,pwrite64", "-o", str(log))
    again = hbatune("apply", "--profile", "oltp", "--no-probe", before=watch)
    assert again.code == 0, again.err
    lines = log.read_text().splitlines()
    assert len(lines) > 100, "strace saw the command"
    opened = [line for line in lines if '"/sys' in line and re.search(r"O_WRONLY|O_RDWR", line)]
    written = [line for line in lines if re.search(r"p?write(64)?\(\d+</sys/", line)]
    assert opened == []
    assert written == []


def test_rollback_restores_every_value(before: dict[str, str]) -> None:
    assert hbatune("apply", "--profile", "oltp", "--no-probe").code == 0
    assert everything() != before
    back = hbatune("rollback", "--json")
    assert back.code == 0, back.out + back.err
    assert everything() == before
    assert not JOURNAL.exists()


def test_rollback_restores_what_a_scheduler_switch_threw_away() -> None:
    [disk] = scsi_disks("sym53c8xx")
    before = everything()
    put(disk, "queue/scheduler", "kyber")
    put(disk, "queue/iosched/read_lat_nsec", "1234567")
    put(disk, "queue/nr_requests", "77")
    namespace = next(disk for disk in nvme_paths() if "c" not in disk.removeprefix("nvme"))
    put(namespace, "queue/scheduler", "mq-deadline")
    put(namespace, "queue/iosched/fifo_batch", "7")
    put(namespace, "queue/iosched/async_depth", "11")
    put(namespace, "queue/nr_requests", "99")
    set_by_hand = everything()
    try:
        assert hbatune("apply", "--profile", "oltp", "--no-probe").code == 0
        assert (scheduler(disk), scheduler(namespace)) == ("mq-deadline", "none")
        back = hbatune("rollback")
        assert back.code == 0, back.out + back.err
        assert everything() == set_by_hand
    finally:
        put(disk, "queue/scheduler", before[f"{disk}/queue/scheduler"])
        put(namespace, "queue/scheduler", before[f"{namespace}/queue/scheduler"])


def test_a_switch_of_profile_keeps_the_first_baseline(before: dict[str, str]) -> None:
    for profile in ("oltp", "balanced", "throughput"):
        done = hbatune("apply", "--profile", profile, "--no-probe")
        assert done.code == 0, done.out + done.err
    assert hbatune("rollback").code == 0
    assert everything() == before


def test_rollback_of_one_target_leaves_it_out_until_it_is_named(before: dict[str, str]) -> None:
    [disk] = scsi_disks("sym53c8xx")
    mine = {name: text for name, text in before.items() if name.startswith(f"{disk}/")}
    assert hbatune("apply", "--profile", "oltp", "--no-probe").code == 0
    assert hbatune("rollback", disk).code == 0
    now = everything()
    assert {name: now[name] for name in mine} == mine
    assert {row["state"] for row in hbatune("diff", "--json").rows(target=disk)} == {"excluded"}
    assert hbatune("apply", "--no-probe").code == 0
    assert {name: everything()[name] for name in mine} == mine
    assert hbatune("apply", "--no-probe", disk).code == 0
    assert cat(disk, "queue/nr_requests") == "2048"


def test_rollback_leaves_no_profile_active(before: dict[str, str]) -> None:
    assert hbatune("apply", "--profile", "oltp", "--no-probe").code == 0
    assert hbatune("rollback").code == 0
    without = hbatune("diff")
    assert without.code == 2
    assert "no profile is active" in without.err


def test_read_ahead_survives_what_raises_it(before: dict[str, str]) -> None:
    """On recent kernels any change of the queue's limits raises read_ahead_kb to 128."""
    [disk] = scsi_disks("sym53c8xx")
    put(disk, "queue/read_ahead_kb", "16")
    rules = Path("/etc/hbatune/rules.d/limits.toml")
    rules.parent.mkdir(parents=True, exist_ok=True)
    rules.write_text(
        '[[rule]]\nname = "no-entropy"\nsetting = "add_random"\nvalue = 1\n'
        'because = "a test"\nsource = "site"\n'
        '[[rule]]\nname = "read-ahead"\nsetting = "read_ahead_kb"\nvalue = 32\n'
        'because = "a test"\nsource = "site"\nwhen = { family = "sym53c8xx" }\n'
    )
    try:
        done = hbatune("apply", "--profile", "balanced", "--no-probe", disk)
        assert done.code == 0, done.out + done.err
        assert (cat(disk, "queue/add_random"), cat(disk, "queue/read_ahead_kb")) == ("1", "32")
        assert hbatune("rollback").code == 0
        assert cat(disk, "queue/read_ahead_kb") == "16"
        assert cat(disk, "queue/add_random") == before[f"{disk}/queue/add_random"]
    finally:
        rules.unlink()
        put(disk, "queue/read_ahead_kb", before[f"{disk}/queue/read_ahead_kb"])
