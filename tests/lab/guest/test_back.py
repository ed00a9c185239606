"""There and back again on real drivers: apply, apply once more, roll back, and all is as it was."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.lab.guest import known, namespaces
from tests.lab.guest.command import JOURNAL, hbatune, writes
from tests.lab.guest.kit import scsi_disks
from tests.lab.guest.values import BLOCK, cat, everything, nvme_queues, put, scheduler


@pytest.fixture
def before() -> Iterator[dict[str, str]]:
    """The values before the test, which end as they were whatever the test does."""
    values = everything()
    yield values
    hbatune("rollback")


def test_apply_removes_diff_drift(before: dict[str, str]) -> None:
    assert hbatune("diff", "--profile", "oltp").code == 1
    assert hbatune("apply", "--profile", "oltp", "--no-probe").code == 0
    after = hbatune("diff")
    assert after.code == 0, "the applied profile is the active one\n" + after.out + after.err


def test_second_apply_writes_nothing(before: dict[str, str], tmp_path: Path) -> None:
    assert hbatune("apply", "--profile", "oltp", "--no-probe").code == 0
    assert writes("apply", "--profile", "oltp", "--no-probe", log=tmp_path / "strace") == []


def test_rollback_restores_every_value(before: dict[str, str]) -> None:
    assert hbatune("apply", "--profile", "oltp", "--no-probe").code == 0
    assert everything() != before
    back = hbatune("rollback", "--json")
    assert back.code == 0, back.out + back.err
    assert everything() == before
    assert not JOURNAL.exists()


def test_rollback_restores_discarded_scheduler_values() -> None:
    [disk] = scsi_disks("sym53c8xx")
    before = everything()
    put(disk, "queue/scheduler", "kyber")
    put(disk, "queue/iosched/read_lat_nsec", "1234567")
    put(disk, "queue/nr_requests", "77")
    namespace = next(disk for disk in nvme_queues() if "c" not in disk.removeprefix("nvme"))
    put(namespace, "queue/scheduler", "mq-deadline")
    put(namespace, "queue/iosched/fifo_batch", "7")
    put(namespace, "queue/nr_requests", "99")
    put_async_depth(namespace, "11")
    set_by_hand = everything()
    try:
        assert hbatune("apply", "--profile", "oltp", "--no-probe").code == 0
        assert scheduler(disk) == "kyber", "no kernel selects it, so somebody has chosen it"
        assert hbatune("apply", "--profile", "oltp", "--no-probe", disk).code == 0
        assert (scheduler(disk), scheduler(namespace)) == ("mq-deadline", "none")
        back = hbatune("rollback")
        assert back.code == 0, back.out + back.err
        assert everything() == set_by_hand
    finally:
        put(disk, "queue/scheduler", before[f"{disk}/queue/scheduler"])
        put(namespace, "queue/scheduler", before[f"{namespace}/queue/scheduler"])


def test_rollback_restores_async_depth(before: dict[str, str]) -> None:
    """A change of nr_requests rescales it on newer kernels, and rounding loses the value."""
    [disk] = scsi_disks("sym53c8xx")
    put_async_depth(disk, "61")
    set_by_hand = everything()
    assert hbatune("apply", "--profile", "oltp", "--no-probe", disk).code == 0
    assert everything() != set_by_hand
    back = hbatune("rollback")
    assert back.code == 0, back.out + back.err
    assert everything() == set_by_hand
    put_async_depth(disk, "256")


def test_controllers_timeout_is_set_and_restored(before: dict[str, str]) -> None:
    """One file of the controller holds it since Linux 7.2, for all its namespaces."""
    namespace = next(disk for disk in nvme_queues() if "c" not in disk.removeprefix("nvme"))
    device = BLOCK / namespace / "device"
    files = [device / "io_timeout"] if (device / "io_timeout").exists() else []
    files.append(BLOCK / namespace / "queue/io_timeout")
    try:
        longer = known.profile("longer", "io_timeout", 240_000)
        assert hbatune("apply", *longer, "--no-probe", namespace).code == 0
        assert {file.read_text() for file in files} == {"240000\n"}
        back = hbatune("rollback")
    finally:
        known.forget("longer")
    assert back.code == 0, back.out + back.err
    assert {file.read_text() for file in files} == {"30000\n"}


def test_each_namespace_keeps_its_timeout(before: dict[str, str]) -> None:
    """A write to their controller would also replace a value that only one of them has."""
    with namespaces.second_namespace() as both:
        disks = nvme_queues()
        longer = known.profile("longer", "io_timeout", 240_000)
        try:
            assert hbatune("apply", *longer, "--no-probe", *disks).code == 0
            assert set(timeouts(disks)) == {"240000"}
            assert hbatune("rollback").code == 0
            assert set(timeouts(disks)) == {"30000"}
            put(both[1], "queue/io_timeout", "45000")
            done = hbatune("apply", *longer, "--no-probe", "--json", *disks)
            if (BLOCK / both[1] / "device/io_timeout").exists():
                rows = [done.row(disk, "io_timeout") for disk in both]
                assert {row["state"] for row in rows} == {"fixed"}
                assert "its own timeout: 45000 ms" in rows[0]["limit"]
                assert timeouts(both) == ["30000", "45000"]
            assert hbatune("rollback").code == 0
            assert timeouts(both) == ["30000", "45000"]
        finally:
            known.forget("longer")


def timeouts(disks: Sequence[str]) -> list[str]:
    return [cat(disk, "queue/io_timeout") for disk in disks]


def put_async_depth(disk: str, text: str) -> None:
    """Set it at the place where this kernel has it."""
    is_newer = (BLOCK / disk / "queue/async_depth").exists()
    put(disk, "queue/async_depth" if is_newer else "queue/iosched/async_depth", text)


def test_read_ahead_survives_limit_changes(before: dict[str, str]) -> None:
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
