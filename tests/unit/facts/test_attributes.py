"""Reading one device's attributes, and many devices' at once."""

import errno
import os
import shutil
import threading
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbatune.facts.attributes import (
    parse_flag,
    parse_integer,
    parse_leading_number,
    read_attributes,
)
from hbatune.facts.model import Attribute, Missing, Reason
from hbatune.facts.survey import survey_requests

ABSENT = Missing(Reason.ABSENT, errno.ENOENT)
TIMED_OUT = Missing(Reason.UNREADABLE, errno.ETIMEDOUT)


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    return make(tmp_path / "sda")


def make(directory: Path, state: str = "running") -> Path:
    (directory / "queue" / "iosched").mkdir(parents=True)
    (directory / "device").mkdir()
    (directory / "mq" / "0").mkdir(parents=True)
    (directory / "device" / "state").write_text(f"{state}\n")
    (directory / "queue" / "nr_requests").write_text("256\n")
    (directory / "queue" / "iosched" / "fifo_batch").write_text("16\n")
    (directory / "queue" / "iosched" / "read_expire").write_text("500\n")
    return directory


def hang(directory: Path) -> None:
    """Make the queue's nr_requests a file that never finishes opening."""
    (directory / "queue" / "nr_requests").unlink()
    os.mkfifo(directory / "queue" / "nr_requests")


def test_read_strips_text_reports_mode(disk: Path) -> None:
    (disk / "size").write_text("  2048 \n")
    (disk / "size").chmod(0o444)
    found = read_attributes(str(disk), ("size", "queue/nr_requests"))
    assert found == {"size": Attribute("2048", False), "queue/nr_requests": Attribute("256", True)}


def test_glob_patterns_expand(disk: Path) -> None:
    assert read_attributes(str(disk), ("queue/iosched/*", "mq/")) == {
        "queue/iosched/fifo_batch": Attribute("16", True),
        "queue/iosched/read_expire": Attribute("500", True),
        "mq/": Attribute("0", False),
    }
    assert read_attributes(str(disk), ("queue/nothing/*", "nothing/")) == {"nothing/": ABSENT}


def test_binary_page_becomes_hex(disk: Path) -> None:
    page = bytes(range(256)) * 40  # longer than one read
    (disk / "device" / "vpd_pg83").write_bytes(page)
    found = read_attributes(str(disk), ("device/vpd_pg83",))["device/vpd_pg83"]
    assert isinstance(found, Attribute)
    assert bytes.fromhex(found.text) == page


@given(st.binary(max_size=64))
def test_attribute_bytes_survive_json(data: bytes) -> None:
    directory = Path("/dev/shm" if os.path.isdir("/dev/shm") else "/tmp")
    name = f"hbatune-test-{os.getpid()}"
    (directory / name).write_bytes(data)
    try:
        found = read_attributes(str(directory), (name,))
    finally:
        (directory / name).unlink()
    assert msgspec.json.decode(msgspec.json.encode(found[name]), type=Attribute) == found[name]


def test_missing_and_unreadable_files_differ(disk: Path) -> None:
    (disk / "queue" / "wbt_lat_usec").mkdir()
    (disk / "size").write_text("1\n")
    found = read_attributes(str(disk), ("queue/nothing", "size/below", "queue/wbt_lat_usec"))
    assert found["size/below"] == ABSENT
    assert found["queue/nothing"] == ABSENT
    assert found["queue/wbt_lat_usec"] == Missing(Reason.UNREADABLE, errno.EISDIR)


def test_removed_device_is_vanished(tmp_path: Path) -> None:
    found = read_attributes(str(tmp_path / "gone"), ("queue/nr_requests",))
    assert found == {"queue/nr_requests": Missing(Reason.VANISHED, errno.ENOENT)}


def test_removal_during_read_vanishes(disk: Path) -> None:
    os.mkfifo(disk / "first")
    found: dict[str, Attribute | Missing] = {}

    def reader() -> None:
        found.update(read_attributes(str(disk), ("first", "size")))

    thread = threading.Thread(target=reader)
    thread.start()
    with open(disk / "first", "wb"):  # the reader has opened it now, and waits for its end
        shutil.rmtree(disk)
    thread.join()
    assert found == {
        "first": Attribute("", True),
        "size": Missing(Reason.VANISHED, errno.ENOENT),
    }


def test_link_target_never_mixes_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The link may lead to another device by the time that the second file is read."""
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        for file in ("model", "vendor"):
            (tmp_path / name / file).write_text(f"{file} of {name}\n")
    disk = tmp_path / "sda"
    disk.mkdir()
    (disk / "device").symlink_to("../one")
    read_part = os.read

    def replace(file: int, length: int) -> bytes:
        (disk / "device").unlink()
        (disk / "device").symlink_to("../other")
        return read_part(file, length)

    monkeypatch.setattr(os, "read", replace)
    assert read_attributes(str(disk), ("device/vendor", "device/model")) == {
        "device/vendor": Attribute("vendor of one", False),
        "device/model": Attribute("model of one", False),
    }


def test_long_file_reads_fully(disk: Path) -> None:
    for length in (447, 448, 449, 4096, 5000):
        (disk / "serial").write_text("7" * length)
        assert read_attributes(str(disk), ("serial",)) == {"serial": Attribute("7" * length, True)}


@pytest.mark.parametrize("state", ["blocked", "transport-offline", "resetting", "quiesce"])
def test_bad_state_skips_queue_read(tmp_path: Path, state: str) -> None:
    disk = make(tmp_path / "sda", state)
    hang(disk)
    found = read_attributes(str(disk), ("queue/nr_requests", "mq/", "device/state"))
    why = Missing(Reason.UNREADABLE, text=f"device state is {state}")
    assert found == {
        "device/state": Attribute(state, True),
        "queue/nr_requests": why,
        "mq/": why,
    }


def test_suspended_map_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "dm").mkdir()
    (tmp_path / "dm" / "suspended").write_text("1\n")
    found = read_attributes(str(tmp_path), ("queue/nr_requests",))["queue/nr_requests"]
    assert found == Missing(Reason.UNREADABLE, text="device state is suspended")


def test_survey_matches_single_reads(tmp_path: Path) -> None:
    """Of disks that differ in their values, in the files they have and in their tunables."""
    disks = [make(tmp_path / f"sd{n}") for n in range(100)]
    for number, disk in enumerate(disks):
        if number % 3 == 0:
            (disk / "queue/nr_requests").unlink()
        elif number % 5 == 0:
            (disk / "queue/nr_requests").write_text(f"{number}\n")
        if number % 4 == 0:
            (disk / "queue/iosched/depth").write_text("48\n")
    wanted = ("queue/nr_requests", "queue/iosched/*", "queue/nothing")
    found = survey_requests(dict.fromkeys(map(str, disks), wanted), deadline=10)
    assert found == {str(disk): read_attributes(str(disk), wanted) for disk in disks}
    has = [isinstance(found[str(disk)]["queue/nr_requests"], Attribute) for disk in disks]
    assert has == [number % 3 != 0 for number in range(100)]


def test_empty_survey_returns_nothing() -> None:
    assert survey_requests({}, deadline=10) == {}


def test_hanging_disk_loses_queue(tmp_path: Path) -> None:
    disks = [make(tmp_path / "host0" / "a" / f"sd{n}") for n in range(10)]
    hang(disks[3])
    wanted = ("queue/nr_requests", "device/state")
    found = survey_requests(dict.fromkeys(map(str, disks), wanted), deadline=3)
    state = Attribute("running", True)
    assert found.pop(str(disks[3])) == {"device/state": state, "queue/nr_requests": TIMED_OUT}
    assert len(found) == 9
    for each in found.values():
        assert each == {"device/state": state, "queue/nr_requests": Attribute("256", True)}


def test_silent_disk_times_out(tmp_path: Path) -> None:
    disk = make(tmp_path / "sda")
    (disk / "device" / "state").unlink()
    os.mkfifo(disk / "device" / "state")
    wanted = ("device/state", "queue/nr_requests")
    found = survey_requests({str(disk): wanted}, deadline=0.3)
    assert found == {str(disk): {"device/state": TIMED_OUT, "queue/nr_requests": TIMED_OUT}}


def test_avoided_disk_reports_reason(tmp_path: Path) -> None:
    disk = make(tmp_path / "sda")
    hang(disk)
    wanted = {str(disk): ("queue/nr_requests", "device/state")}
    found = survey_requests(wanted, deadline=10, avoid={str(disk): "a writer is at it"})
    assert found[str(disk)] == {
        "device/state": Attribute("running", True),
        "queue/nr_requests": Missing(Reason.UNREADABLE, text="a writer is at it"),
    }


def test_parsers_return_value_or_reason() -> None:
    texts = {"number": "12", "hex": "0x1f", "speed": "8.0 GT/s PCIe", "word": "Unknown"}
    found: dict[str, Attribute | Missing] = {
        name: Attribute(text, True) for name, text in texts.items()
    }
    unparsable = Missing(Reason.UNPARSABLE, text="Unknown")
    assert parse_integer(found, "number") == 12
    assert parse_integer(found, "hex", 16) == 31
    assert parse_integer(found, "word") == unparsable
    assert parse_integer(found, "nothing") == ABSENT
    assert parse_leading_number(found, "speed") == 8.0
    assert parse_leading_number(found, "word") == unparsable
    assert parse_flag(found, "number") == Missing(Reason.UNPARSABLE, text="12")
