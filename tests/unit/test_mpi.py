"""The page of a Broadcom firmware, behind a fake of the two drivers' ioctls.

The fake takes the requests apart as the drivers' headers define them, and has its page in a file,
so that workers and tests see the same.
"""

import ctypes
import errno
import fcntl
import os
import struct
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hbatune import mpi, nvme
from hbatune.act import firmware, journal
from hbatune.act.executor import Means
from hbatune.act.restore import plan_rollback, restore_values
from hbatune.act.writer import write_plan
from hbatune.facts.attributes import FIRMWARE_FILE, Survey, read_attributes, reread_attribute
from hbatune.facts.model import Attribute, Machine, Missing, Reason, TargetKind
from hbatune.facts.survey import Requests, survey_requests
from hbatune.plan.make import make_plan
from hbatune.plan.rows import Outcome, Restored, Row, State
from hbatune.policy.config import Site, SiteAdapter
from hbatune.policy.profile import Exactly
from hbatune.settings.table import SETTINGS, list_attributes
from hbatune.text.limit_text import describe_limit
from tests.unit.machines import adapter, control, machine
from tests.unit.profiles import profile

SG_IO, MPT3COMMAND = 0x2285, 0xC0484C14
MPI3_PAGE = bytes.fromhex("00000110 0400 0200 10000000 04 00 0000".replace(" ", ""))
MPI2_PAGE = bytes.fromhex("05060111 01000000 10000000 04ff0000 00000000 00000000".replace(" ", ""))
TIMEOUTS = {"mpi3mr": 60, "mpt3sas": 10}
"""The drivers' own, in seconds: less would reset a busy adapter sooner."""


class Firmware:
    """The firmware behind a SCSI host; ``folder`` has its files, and the requests that came in."""

    def __init__(self, folder: Path, driver: str) -> None:
        self.folder, self.driver = folder, driver
        self.sysfs = folder / "pci/host0/scsi_host/host0"
        self.sysfs.mkdir(parents=True)
        (self.sysfs / "device").symlink_to("../..")
        (folder / "pci/device").write_text("0x00ac\n")
        for name, text in (("proc_name", driver), ("unique_id", "7"), ("state", "running")):
            (self.sysfs / name).write_text(text)
        if driver == "mpi3mr":
            (self.sysfs / "adp_state").write_text("1")
            node = folder / "pci/host0/mpi3mrctl7/bsg/mpi3mrctl7"
            node.mkdir(parents=True)
            (node / "dev").write_text("240:7")
        self.page = MPI3_PAGE if driver == "mpi3mr" else MPI2_PAGE
        (folder / "sent").write_text("")
        (folder / "status").write_text("0 0")

    @property
    def page(self) -> bytes:
        return (self.folder / "page").read_bytes()

    @page.setter
    def page(self, page: bytes) -> None:
        (self.folder / "page").write_bytes(page)

    @property
    def sent(self) -> list[str]:
        return (self.folder / "sent").read_text().split()

    def refuse(self, status: int = 0, number: int = 0) -> None:
        """Have the firmware answer with this status, or the driver with this errno."""
        (self.folder / "status").write_text(f"{status} {number}")

    def ioctl(self, descriptor: int, code: int, buffer: bytearray, mutate: bool) -> int:
        assert mutate
        status, number = map(int, (self.folder / "status").read_text().split())
        if number:
            raise OSError(number, os.strerror(number))
        if self.driver == "mpi3mr":
            assert code == SG_IO
            self._serve3(buffer, status)
        else:
            assert code == MPT3COMMAND
            self._serve2(buffer, status)
        return 0

    def _note(self, action: str) -> None:
        with (self.folder / "sent").open("a") as log:
            log.write(f"{action}\n")

    def _serve3(self, buffer: bytearray, status: int) -> None:
        guard, protocol, subprotocol, length, at = struct.unpack_from("=iIIIQ", buffer)
        assert (guard, protocol, subprotocol, len(buffer)) == (ord("Q"), 0, 2, 160)
        packet = ctypes.string_at(at, length)
        _, sent, _, received, out, into = struct.unpack_from("=IIIIQQ", buffer, 56)
        kind, *_, id, _, timeout, _ = struct.unpack_from("<BBHIBBHI", packet)
        assert (kind, id) == (2, 7)
        assert timeout >= TIMEOUTS["mpi3mr"]
        count = packet[16]
        entries = [struct.unpack_from("<BBHI", packet, 24 + 8 * index) for index in range(count)]
        (_, _, _, size), (direction, _, _, data), (reply, _, _, room) = entries
        assert (entries[0][0], size, reply) == (0xFE, 32, 5)
        request = ctypes.string_at(out, sent)
        assert request[3] == 0x10
        version, page_number, page_type, action = request[12:16]
        assert (page_number, page_type) == (1, 2)
        (words,) = struct.unpack_from("<H", request, 20)
        answer = b""
        if action == 0:
            assert (direction, data, sent) == (3, 8, 32)
            answer = self.page[:8]
        else:
            assert (version, 4 * words, data) == (0, 16, 16)
            assert direction == {2: 3, 3: 4}[action]
            answer = self.page if action == 2 else b""
            if action == 3 and not status:
                self.page = request[32:]
        self._note({0: "header", 2: "read", 3: "write"}[action])
        assert received == len(answer) + room
        as_frame = struct.pack("<B3x10xH", 2, status).ljust(room, b"\0")
        ctypes.memmove(into, answer + as_frame, received)

    def _serve2(self, buffer: bytearray, status: int) -> None:
        id, _, _, timeout, reply, into, out, _ = struct.unpack_from("=IIIIQQQQ", buffer)
        room, taken, given, _, offset = struct.unpack_from("=IIIII", buffer, 48)
        assert (id, offset) == (7, 7)
        assert timeout >= TIMEOUTS["mpt3sas"]
        request = bytes(buffer[68:])
        action, function = request[0], request[3]
        assert (function, len(request)) == (4, 28)
        assert (request[22], request[23] & 0xF) == (1, 1)
        if action == 0:
            assert (taken, given) == (0, 0)
        else:
            assert request[21] == 6
            assert (taken, given) == {1: (24, 0), 2: (0, 24)}[action]
        if action == 1:
            ctypes.memmove(into, self.page, 24)
        if action == 2 and not status:
            self.page = ctypes.string_at(out, 24)
        self._note({0: "header", 1: "read", 2: "write"}[action])
        answer = struct.pack("<14xH4x4s", status, self.page[:4])
        ctypes.memmove(reply, answer.ljust(room, b"\0"), room)


@pytest.fixture(params=["mpi3mr", "mpt3sas"])
def card(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Firmware:
    card = Firmware(tmp_path / "card", request.param)
    monkeypatch.setattr(fcntl, "ioctl", card.ioctl)
    monkeypatch.setattr(nvme, "find_node", lambda name, number: "/dev/null")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return card


@pytest.fixture
def means(tmp_path: Path) -> Means:
    return Means(
        tmp_path / "state/journal.json",
        tmp_path / "writers",
        tmp_path / "spent.json",
        workers=1,
        deadline=20.0,
    )


def survey(requests: Requests) -> Survey:
    return survey_requests(requests, deadline=20.0)


def host(card: Firmware, access: Literal["read", "set"] = "set", *, fresh: bool = True) -> Machine:
    """Return the machine with the card as an apply sees it, or a look that is not ``fresh``."""
    place = control(target="host0", kind=TargetKind.HOST, sysfs=str(card.sysfs), attributes={})
    hba = adapter(family=card.driver, controller=None)
    bare = machine(adapters=(hba,), controls=(place,))
    site = Site(adapter={hba.target: SiteAdapter(access)})
    pages = card.folder / "pages"
    return firmware.attach_pages(bare, site, pages, survey, fresh=fresh)


def plan(server: Machine, value: int | str = 0) -> Row:
    [row] = make_plan(server, profile(("firmware_coalescing", Exactly(value)))).rows
    return row


def apply(card: Firmware, means: Means, value: int | str = 0) -> Row:
    server = host(card)
    filed = journal.load(means.journal, server.boot_id)[0]
    wanted = make_plan(server, profile(("firmware_coalescing", Exactly(value))))
    read = {place.sysfs: place.attributes for place in server.controls}
    [row] = write_plan(server, wanted, filed, replace(means, read=read))
    firmware.note_rows(card.folder / "pages", [row])
    return row


def roll_back(card: Firmware, means: Means) -> Restored:
    server = host(card, fresh=False)
    filed = journal.load(means.journal, server.boot_id)[0]
    [restored] = restore_values(plan_rollback(server, filed, means), means)
    firmware.note_rows(card.folder / "pages", [restored])
    return restored


def read(card: Firmware) -> Attribute | Missing:
    return read_attributes(str(card.sysfs), (FIRMWARE_FILE,))[FIRMWARE_FILE]


def test_page_follows_its_header(card: Firmware) -> None:
    text = read(card)
    assert isinstance(text, Attribute)
    assert text.text.startswith("4/16 ")
    assert SETTINGS["firmware_coalescing"].format.parse(text.text) == "4/16"
    assert card.sent == ["header", "read"]


def test_coalescing_is_switched_off_and_restored(card: Firmware, means: Means) -> None:
    before = card.page
    row = apply(card, means)
    off = {"mpi3mr": "1/0", "mpt3sas": "4/16 off"}[card.driver]
    assert (row.current, row.value, row.outcome) == ("4/16", off, Outcome.WRITTEN)
    # For the plan, then for the write: no request is repeated, the baseline needs none.
    assert card.sent == ["header", "read", "header", "read", "write", "read"]
    assert card.page != before
    restored = roll_back(card, means)
    assert (restored.before, restored.outcome) == ("4/16", Outcome.WRITTEN)
    assert card.page == before


def test_rollback_of_reset_firmware_writes_nothing(card: Firmware, means: Means) -> None:
    before = card.page
    apply(card, means, "8/100")
    card.page = before
    (card.folder / "sent").write_text("")
    assert roll_back(card, means).outcome is Outcome.KEPT
    assert card.sent == ["header", "read"]


def test_switched_off_page_keeps_its_fields(card: Firmware, means: Means) -> None:
    if card.driver == "mpi3mr":  # its page has no flag
        return
    card.page = before = mpi.change_page(MPI2_PAGE, "9/20 off")
    assert apply(card, means, "2/10").outcome is Outcome.WRITTEN
    roll_back(card, means)
    assert card.page == before


def test_page_is_read_once(card: Firmware) -> None:
    first, second = plan(host(card, "read", fresh=False)), plan(host(card, "read", fresh=False))
    assert card.sent == ["header", "read"]
    assert first == second
    assert (first.current, first.state) == ("4/16", State.FIXED)
    assert "min ago" in describe_limit(first.limit)
    assert 'firmware = "read"' in describe_limit(first.limit)


def test_look_after_apply_needs_no_request(card: Firmware, means: Means) -> None:
    apply(card, means)
    (card.folder / "sent").write_text("")
    assert plan(host(card, fresh=False)).state is State.OK
    roll_back(card, means)
    (card.folder / "sent").write_text("")
    assert plan(host(card, fresh=False)).current == "4/16"
    assert card.sent == []


def test_closed_firmware_is_absent(card: Firmware) -> None:
    place = control(target="host0", kind=TargetKind.HOST, sysfs=str(card.sysfs), attributes={})
    server = machine(adapters=(adapter(family=card.driver, controller=None),), controls=(place,))
    opened = firmware.attach_pages(server, Site(), card.folder, survey, fresh=True)
    row = plan(opened)
    assert (row.state, row.current) == (State.ABSENT, None)
    assert "[site.adapter]" in describe_limit(row.limit)
    assert FIRMWARE_FILE not in list_attributes(on=TargetKind.HOST)
    assert card.sent == []


def test_user_sends_no_request(card: Firmware, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert plan(host(card)).state is State.UNREADABLE
    assert card.sent == []
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    host(card, "read")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert plan(host(card, "read")).current == "4/16", "what root has read, all may see"


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.EBUSY, errno.ENODATA])
def test_refused_read_is_not_repeated(card: Firmware, number: int) -> None:
    card.refuse(number=number)
    assert read(card) == Missing(
        Reason.UNREADABLE, number, f"the driver refused: {os.strerror(number)}"
    )
    assert plan(host(card, fresh=False)).state is State.UNREADABLE
    card.refuse()
    assert plan(host(card, fresh=False)).state is State.UNREADABLE
    assert card.sent == []
    assert plan(host(card)).state is State.DRIFT, "an apply reads it again"


def test_killed_read_is_not_repeated(card: Firmware) -> None:
    def die(requests: Requests) -> Survey:
        raise KeyboardInterrupt

    server, site = host(card, "read", fresh=False), Site()
    pages = card.folder / "other"
    names = {name.target: SiteAdapter("read") for name in server.adapters}
    site = Site(adapter=names)
    with pytest.raises(KeyboardInterrupt):
        firmware.attach_pages(server, site, pages, die, fresh=False)
    (card.folder / "sent").write_text("")
    later = firmware.attach_pages(server, site, pages, survey, fresh=False)
    assert plan(later).state is State.UNREADABLE
    assert card.sent == []


@pytest.mark.parametrize("file", ["state", "adp_state"])
def test_unready_adapter_gets_no_request(card: Firmware, means: Means, file: str) -> None:
    if not (card.sysfs / file).exists():  # adp_state is mpi3mr's
        return
    text = mpi.read_page(str(card.sysfs))
    (card.folder / "sent").write_text("")
    (card.sysfs / file).write_text("3")
    assert isinstance(read(card), Missing)
    assert isinstance(reread_attribute(str(card.sysfs), FIRMWARE_FILE), Missing)
    with pytest.raises(mpi.PageError, match="not operational"):
        mpi.write_page(str(card.sysfs), text, "8/100")
    assert apply(card, means).state is State.UNREADABLE
    assert card.sent == []


def test_fixed_page_is_not_written(card: Firmware, means: Means) -> None:
    page = bytearray(card.page)
    page[3] &= 0x0F
    card.page = bytes(page)
    row = apply(card, means)
    assert (row.state, row.outcome) == (State.FIXED, None)
    with pytest.raises(mpi.PageError):
        mpi.write_page(str(card.sysfs), mpi.read_page(str(card.sysfs)), "8/100")
    assert "write" not in card.sent


def test_page_of_perf_mode_is_not_written(card: Firmware, means: Means) -> None:
    (card.folder / "pci/device").write_text("0x00e6\n")
    row = apply(card, means)
    if card.driver == "mpi3mr":  # it has no such option
        assert row.outcome is Outcome.WRITTEN
        return
    assert "perf_mode" in describe_limit(row.limit)
    assert row.state is State.FIXED
    assert "write" not in card.sent


def test_refused_write_is_reported_once(card: Firmware, means: Means) -> None:
    server = host(card)
    card.refuse(status=0x8023)
    with pytest.raises(mpi.PageError, match="status 0x0023"):
        mpi.write_page(str(card.sysfs), mpi_text(server, card), "8/100")
    assert card.sent == ["header", "read", "write"]


def mpi_text(server: Machine, card: Firmware) -> str:
    [place] = server.controls
    attribute = place.attributes[FIRMWARE_FILE]
    assert isinstance(attribute, Attribute)
    return f"{attribute.text} {card.page.hex()}"


def test_replaced_driver_is_unknown(card: Firmware) -> None:
    (card.sysfs / "proc_name").write_text("other")
    missing = read(card)
    assert isinstance(missing, Missing)
    assert "no known way" in (missing.text or "")
    assert card.sent == []


@given(
    page=st.sampled_from([MPI3_PAGE, MPI2_PAGE]).flatmap(
        lambda page: st.binary(min_size=len(page), max_size=len(page))
    ),
    depth=st.integers(0, 255),
    timeout=st.integers(0, (1 << 32) - 1),
    off=st.booleans(),
)
def test_only_two_fields_and_flag_change(page: bytes, depth: int, timeout: int, off: bool) -> None:
    changed = mpi.change_page(page, f"{depth}/{timeout}" + (" off" if off else ""))
    assert struct.unpack_from("<IB", changed, 8) == (timeout, depth)
    kept = [index for index in range(len(page)) if index not in (8, 9, 10, 11, 12)]
    if len(page) == len(MPI2_PAGE):
        assert changed[4] & 1 == (0 if off else 1)
        assert changed[4] & ~1 == page[4] & ~1
        kept.remove(4)
    assert [changed[index] for index in kept] == [page[index] for index in kept]
    assert len(changed) == len(page)


@pytest.mark.parametrize("place", [0, 2, 4, 6])
def test_page_of_other_version_is_not_touched(card: Firmware, means: Means, place: int) -> None:
    page = bytearray(card.page)
    page[{"mpi3mr": place, "mpt3sas": {4: 1, 6: 3}.get(place, place)}[card.driver]] += 1
    card.page = bytes(page)
    row = apply(card, means)
    assert row.state is State.UNREADABLE
    assert "unknown page" in describe_limit(row.limit)
    assert card.sent == ["header"]


@pytest.mark.parametrize(
    ("value", "accepted"),
    [
        (0, True),
        ("2/1", True),
        ("255/1000", True),
        ("1/10", False),
        ("256/10", False),
        ("8/0", False),
        ("8/1001", False),
        ("8/10 off", False),
        (8, False),
        (True, False),
    ],
)
def test_rule_sets_sensible_values_only(value: object, accepted: bool) -> None:
    assert SETTINGS["firmware_coalescing"].format.accepts(value) is accepted
