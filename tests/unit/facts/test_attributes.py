"""Reading one device's attributes."""

import errno
import fcntl
import os
import shutil
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbatune.facts import attributes as attributes_module
from hbatune.facts.attributes import (
    MAP_TABLE,
    parse_flag,
    parse_integer,
    parse_leading_number,
    read_attributes,
)
from hbatune.facts.model import Attribute, Missing, Reason
from tests.unit.sysfs_disks import hang_queue, make_disk

ABSENT = Missing(Reason.ABSENT, errno.ENOENT)


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    return make_disk(tmp_path / "sda")


def test_read_strips_text_reports_mode(disk: Path) -> None:
    (disk / "size").write_text("  2048 \n")
    (disk / "size").chmod(0o444)
    attributes = read_attributes(str(disk), ("size", "queue/nr_requests"))
    assert attributes == {
        "size": Attribute("2048", False),
        "queue/nr_requests": Attribute("256", True),
    }


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
    attribute = read_attributes(str(disk), ("device/vpd_pg83",))["device/vpd_pg83"]
    assert isinstance(attribute, Attribute)
    assert bytes.fromhex(attribute.text) == page


@given(st.binary(max_size=64))
def test_attribute_bytes_survive_json(data: bytes) -> None:
    directory = Path("/dev/shm" if os.path.isdir("/dev/shm") else "/tmp")
    name = f"hbatune-test-{os.getpid()}"
    (directory / name).write_bytes(data)
    try:
        attributes = read_attributes(str(directory), (name,))
    finally:
        (directory / name).unlink()
    assert (
        msgspec.json.decode(msgspec.json.encode(attributes[name]), type=Attribute)
        == attributes[name]
    )


def test_missing_and_unreadable_files_differ(disk: Path) -> None:
    (disk / "queue" / "wbt_lat_usec").mkdir()
    (disk / "size").write_text("1\n")
    attributes = read_attributes(str(disk), ("queue/nothing", "size/below", "queue/wbt_lat_usec"))
    assert attributes["size/below"] == ABSENT
    assert attributes["queue/nothing"] == ABSENT
    assert attributes["queue/wbt_lat_usec"] == Missing(Reason.UNREADABLE, errno.EISDIR)


def test_removed_device_is_vanished(tmp_path: Path) -> None:
    attributes = read_attributes(str(tmp_path / "gone"), ("queue/nr_requests",))
    assert attributes == {"queue/nr_requests": Missing(Reason.VANISHED, errno.ENOENT)}


def test_removal_during_read_vanishes(disk: Path) -> None:
    os.mkfifo(disk / "first")
    attributes: dict[str, Attribute | Missing] = {}

    def reader() -> None:
        attributes.update(read_attributes(str(disk), ("first", "size")))

    thread = threading.Thread(target=reader)
    thread.start()
    with open(disk / "first", "wb"):  # the reader has opened it now, and waits for its end
        shutil.rmtree(disk)
    thread.join()
    assert attributes == {
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
    disk = make_disk(tmp_path / "sda", state)
    hang_queue(disk)
    attributes = read_attributes(str(disk), ("queue/nr_requests", "mq/", "device/state"))
    why = Missing(Reason.UNREADABLE, text=f"device state is {state}")
    assert attributes == {
        "device/state": Attribute(state, True),
        "queue/nr_requests": why,
        "mq/": why,
    }


def test_suspended_map_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "dm").mkdir()
    (tmp_path / "dm" / "suspended").write_text("1\n")
    attribute = read_attributes(str(tmp_path), ("queue/nr_requests",))["queue/nr_requests"]
    assert attribute == Missing(Reason.UNREADABLE, text="device state is suspended")


def test_parsers_return_value_or_reason() -> None:
    texts = {"number": "12", "hex": "0x1f", "speed": "8.0 GT/s PCIe", "word": "Unknown"}
    attributes: dict[str, Attribute | Missing] = {
        name: Attribute(text, True) for name, text in texts.items()
    }
    unparsable = Missing(Reason.UNPARSABLE, text="Unknown")
    assert parse_integer(attributes, "number") == 12
    assert parse_integer(attributes, "hex", 16) == 31
    assert parse_integer(attributes, "word") == unparsable
    assert parse_integer(attributes, "nothing") == ABSENT
    assert parse_leading_number(attributes, "speed") == 8.0
    assert parse_leading_number(attributes, "word") == unparsable
    assert parse_flag(attributes, "number") == Missing(Reason.UNPARSABLE, text="12")


UUID = "mpath-36005076801"
_TARGET = b"multipath".ljust(16, b"\0") + b"0 0 1 1 service-time 0 2 2 8:16 1 1 8:999999 1 1\0junk"


@pytest.fixture
def device_mapper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Return a function that makes a map, and a device-mapper that answers or fails."""
    directory, control = tmp_path / "dm-0", tmp_path / "control"

    def make(error: int = 0) -> Path:
        (directory / "dm").mkdir(parents=True)
        (directory / "dm/uuid").write_text(UUID)
        control.touch()

        def answer(_: int, number: int, request: bytearray) -> None:
            # linux/dm-ioctl.h: struct dm_ioctl ends at byte 312, and its uuid is at byte 176.
            assert number == 0xC138FD0C
            assert request[176:305].rstrip(b"\0") == UUID.encode()
            assert struct.unpack_from("=3IIIIiI", request) == (
                4,
                0,
                0,
                len(request),
                312,
                0,
                0,
                2064,
            )
            if error:
                raise OSError(error, os.strerror(error))
            struct.pack_into("=I", request, 16, 320)
            request[344 : 344 + len(_TARGET)] = _TARGET

        monkeypatch.setattr(attributes_module, "_MAP_CONTROL", str(control))
        monkeypatch.setattr(fcntl, "ioctl", answer)
        monkeypatch.setattr(os, "readlink", lambda path: f"../../block/sd-{path[-4:]}")
        return directory

    return make


def test_map_table_names_disks(device_mapper: Callable[..., Path]) -> None:
    directory = device_mapper()
    table = read_attributes(str(directory), (MAP_TABLE,))[MAP_TABLE]
    text = "multipath 0 0 1 1 service-time 0 2 2 sd-8:16 1 1 sd-9999 1 1"
    assert table == Attribute(text, False)


@pytest.mark.parametrize(
    ("error", "reason"),
    [(errno.ENXIO, Reason.ABSENT), (errno.EPERM, Reason.UNREADABLE)],
)
def test_refused_map_table_is_missing(
    device_mapper: Callable[..., Path], error: int, reason: Reason
) -> None:
    directory = device_mapper(error)
    table = read_attributes(str(directory), (MAP_TABLE,))[MAP_TABLE]
    assert isinstance(table, Missing)
    assert (table.reason, table.errno) == (reason, error)
