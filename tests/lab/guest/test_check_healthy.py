"""A host whose drives smartd polls is healthy; one whose disk fails to read is not."""

import ctypes
import fcntl
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hbatune.operations.snapshot import check_for_daemon
from hbatune.policy.config import Config
from hbatune.policy.vendors import load_chosen_profile
from tests.lab.guest.command import Done, hbatune
from tests.lab.guest.kit import loaded_scsi_debug
from tests.lab.guest.values import cat, disks

KERNELS = ("6.1",)
POLLS = 40
BAD_SECTOR = 0x1234  # drivers/scsi/scsi_debug.c: OPT_MEDIUM_ERR_ADDR
MEDIUM, TRANSPORT = 0x2, 0x10  # SDEBUG_OPT_MEDIUM_ERR, SDEBUG_OPT_TRANSPORT_ERR
COUNTERS = Path("/var/lib/hbatune/counters.json")
DRIVER = Path("/sys/bus/pseudo/drivers/scsi_debug")

TEST_UNIT_READY = bytes(6)
INQUIRY = bytes((0x12, 0, 0, 0, 96, 0))
LOG_SENSE = bytes((0x4D, 0, 0x40 | 0x3E, 0, 0, 0, 0, 0, 96, 0))  # a page that no disk here has
# ATA PASS-THROUGH (16) of CHECK POWER MODE with CK_COND: success comes as a check condition.
CHECK_POWER_MODE = bytes((0x85, 3 << 1, 0x20, *(0,) * 11, 0xE5, 0))

_SG_IO, _FROM_DEVICE = 0x2285, -3


class _Header(ctypes.Structure):
    """include/scsi/sg.h: struct sg_io_hdr."""

    _fields_ = (
        ("interface_id", ctypes.c_int),
        ("direction", ctypes.c_int),
        ("command_length", ctypes.c_ubyte),
        ("sense_size", ctypes.c_ubyte),
        ("pieces", ctypes.c_ushort),
        ("size", ctypes.c_uint),
        ("data", ctypes.c_void_p),
        ("command", ctypes.c_void_p),
        ("sense", ctypes.c_void_p),
        ("timeout", ctypes.c_uint),
        ("flags", ctypes.c_uint),
        ("pack_id", ctypes.c_int),
        ("user", ctypes.c_void_p),
        ("status", ctypes.c_ubyte),
        ("masked_status", ctypes.c_ubyte),
        ("message_status", ctypes.c_ubyte),
        ("sense_length", ctypes.c_ubyte),
        ("host_status", ctypes.c_ushort),
        ("driver_status", ctypes.c_ushort),
        ("left", ctypes.c_int),
        ("duration", ctypes.c_uint),
        ("info", ctypes.c_uint),
    )


def send(disk: str, command: bytes) -> int:
    """Send a command past the block layer, as smartd does, and return the SCSI status."""
    data, sense = ctypes.create_string_buffer(96), ctypes.create_string_buffer(32)
    words = ctypes.create_string_buffer(command, len(command))
    header = _Header(
        interface_id=ord("S"),
        direction=_FROM_DEVICE,
        command_length=len(command),
        sense_size=len(sense),
        size=len(data),
        data=ctypes.addressof(data),
        command=ctypes.addressof(words),
        sense=ctypes.addressof(sense),
        timeout=20_000,
    )
    node = os.open(f"/dev/{disk}", os.O_RDONLY | os.O_NONBLOCK)
    try:
        fcntl.ioctl(node, _SG_IO, header)
    finally:
        os.close(node)
    return int(header.status)


def poll(disk: str) -> None:
    """Ask the disk for what smartd asks for, some of which it does not know."""
    for command in (TEST_UNIT_READY, INQUIRY, LOG_SENSE, CHECK_POWER_MODE):
        send(disk, command)


def errors(disk: str) -> int:
    return int(cat(disk, "device/ioerr_cnt"), 16)


def check() -> tuple[Done, dict[str, str]]:
    """Return what ``check`` did, and its findings above info as lines."""
    done = hbatune("check", "--json")
    findings = done.json["findings"]
    evidence = {f"{finding['id']} {finding['target']}": finding["evidence"] for finding in findings}
    grave = [f"{e['id']} {e['target']}" for e in findings if e["severity"] != "info"]
    return done, {name: evidence[name] for name in grave}


@pytest.fixture(autouse=True)
def _first_look() -> Iterator[None]:
    """What other tests did to the lab's disks is over: the log is cleared, the counters stored."""
    subprocess.run(["dmesg", "--clear"], check=True)
    COUNTERS.parent.mkdir(parents=True, exist_ok=True)
    COUNTERS.unlink(missing_ok=True)
    check_for_daemon(
        Config(), load_chosen_profile("oltp", Config())
    )  # as an audit of the daemon does
    yield
    subprocess.run(["dmesg", "--clear"], check=True)


def test_polled_host_is_healthy() -> None:
    drives = [name for name in disks() if name.startswith("sd")]
    before = {drive: errors(drive) for drive in drives}
    for _ in range(POLLS):
        for drive in drives:
            poll(drive)
    # It is the very counter that polls raise which is not to be believed.
    assert all(errors(drive) >= before[drive] + POLLS for drive in drives)
    for controller in sorted(path.name for path in Path("/sys/class/nvme").iterdir()):
        subprocess.run(["nvme", "smart-log", f"/dev/{controller}"], check=True)
    done, grave = check()
    assert grave == {}
    assert done.code == 0
    # Nor are there words about the count, and none where nobody has looked before.
    assert not {finding["id"] for finding in done.json["findings"]} & {
        "command-errors",
        "disk-unread",
    }
    COUNTERS.unlink()
    assert not {name for name in check()[1] if not name.startswith("command-timeouts")}


@pytest.mark.parametrize(
    ("option", "finding", "kind"),
    [(MEDIUM, "medium-errors", "medium"), (TRANSPORT, "transport-errors", "transport")],
)
def test_io_failure_kind_is_reported(option: int, finding: str, kind: str) -> None:
    with loaded_scsi_debug(max_luns=1, num_tgts=1, dev_size_mb=16) as [disk]:
        (DRIVER / "opts").write_text(hex(option))
        (DRIVER / "every_nth").write_text("1")
        words = ["dd", f"if=/dev/{disk}", "of=/dev/null", "iflag=direct", "count=1", "bs=512"]
        read = subprocess.run([*words, f"skip={BAD_SECTOR}"], capture_output=True, check=False)
        assert read.returncode, "the read has to fail"
        (DRIVER / "opts").write_text("0")
        (DRIVER / "every_nth").write_text("0")
        poll(disk)
        done, grave = check()
        assert set(grave) == {f"{finding} {disk}"}
        assert done.code == 1
        [reported] = [entry for entry in done.json["findings"] if entry["id"] == finding]
        assert reported["facts"]["kinds"] == [kind]
        # Seen and cleared by an administrator, it is over.
        subprocess.run(["dmesg", "--clear"], check=True)
        assert check()[1] == {}
