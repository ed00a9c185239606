"""Interrupt coalescing in the firmware of Broadcom adapters: configuration page IOC 1.

Only this module sends requests to a firmware, through the drivers mpi3mr (MPI 3.0) and mpt3sas (MPI
2.x). A request that times out resets the adapter (drivers/scsi/mpi3mr/mpi3mr_app.c:
mpi3mr_bsg_process_mpt_cmds; drivers/scsi/mpt3sas/mpt3sas_ctl.c: _ctl_do_mpt_command). It is sent
only to an operational adapter, once, with at least the driver's own timeout. Only the current page
is written: a reset of the adapter restores the firmware's own.
"""

import array
import fcntl
import os
import struct
from enum import StrEnum

from hbatune import nvme


class PageWord(StrEnum):
    """A word in the text of a page, after its depth and timeout."""

    OFF = "off"  # MPI 2.x: coalescing is switched off
    FLAGGED = "flagged"  # MPI 2.x: a flag switches coalescing on and off
    FIXED = "fixed"  # the firmware does not let the page be changed
    PERF_MODE = "perf_mode"  # an option of the driver controls the page
    READ_ONLY = "read-only"  # the site does not let the page be changed


class PageError(OSError):
    """The page cannot be read or must not be written, with the reason."""


# drivers/scsi/mpi3mr/mpi/mpi30_cnfg.h: mpi3_ioc_page1; drivers/scsi/mpt3sas/mpi/mpi2_cnfg.h:
# MPI2_CONFIG_PAGE_IOC_1: version, length in words and type. The timeout and the depth are at the
# same place in both. The actions READ_CURRENT and WRITE_CURRENT follow the versions.
_MPI3, _MPI2, _PAGE_NUMBER = (0, 4, 2), (5, 6, 1), 1
_HEADER, _READ, _WRITE = 0, {_MPI3: 2, _MPI2: 1}, {_MPI3: 3, _MPI2: 2}
_FLAGS, _TIMEOUT, _DEPTH = 4, 8, 12
_COALESCES = 1  # MPI2_IOCPAGE1_REPLY_COALESCING
_ATTRIBUTES, _CHANGEABLE = 0xF0, (0x10, 0x20)  # PAGEATTR_CHANGEABLE and PAGEATTR_PERSISTENT
# The PCI ids of SAS3816 and SAS3916 (mpi2_cnfg.h), whose page mpt3sas writes at each reset
# (mpt3sas_base.c: _base_update_ioc_page1_inlinewith_perf_mode).
_BY_PERF_MODE = range(0xE0, 0xE8)

# include/uapi/linux/bsg.h: sg_io_v4; include/uapi/scsi/scsi_bsg_mpi3mr.h: mpi3mr_bsg_packet with
# three buffers; mpi30_cnfg.h: mpi3_config_request without its list of memory
_TRANSPORT, _SG_IO = struct.Struct("=iIIIQQIIIIQIIIIQQIIQIIIIIIIIiiQII"), 0x2285
_PACKET, _REQUEST3 = struct.Struct("<" + "BBHI" * 6), struct.Struct("<HBBHBBHBBBBBBIHHII")
_REQUEST, _DATA_IN, _DATA_OUT, _REPLY = 0xFE, 3, 4, 5  # MPI3MR_BSG_BUFTYPE_
# mpt3sas_ctl.h: mpt3_ioctl_command, MPT3COMMAND; mpi2_cnfg.h: MPI2_CONFIG_REQUEST without its list
_COMMAND, _SEND = struct.Struct("=IIIIQQQQIIIII"), 0xC0484C14
_REQUEST2 = struct.Struct("<BBBBHBBBBHBBHIBBBBI")
# Seconds: MPI3MR_APP_DEFAULT_TIMEOUT; mpt3sas_config.c: MPT3_CONFIG_PAGE_DEFAULT_TIMEOUT
_TIMEOUT3_S, _TIMEOUT2_S = 60, 15
# mpt3sas_ctl.c: ctl_dev and gen2_ctl_dev; include/linux/miscdevice.h: MPT_MINOR
_NODES = {"mpt3sas": ("mpt3ctl", "10:222"), "mpt2sas": ("mpt2ctl", "10:221")}
_REPLY_BYTES, _STATUS = 24, 0x7FFF


def read_page(sysfs: str, *, header: bool = True) -> str:
    """Return the page of the SCSI host in ``sysfs`` as a text: ``DEPTH/TIMEOUT``, words, bytes.

    It reads the header first, unless this process has just read the page. Raises OSError.
    """
    adapter = _Adapter(sysfs)
    if header:
        adapter.send(_HEADER)
    page = adapter.send(_READ[adapter.version])
    (timeout,), words = struct.unpack_from("<I", page, _TIMEOUT), list[str]()
    if adapter.version is _MPI2:
        words += [] if page[_FLAGS] & _COALESCES else [PageWord.OFF]
        words.append(PageWord.FLAGGED)
        if int(_read(f"{sysfs}/device/../device"), 16) in _BY_PERF_MODE:
            words.append(PageWord.PERF_MODE)
    if page[3] & _ATTRIBUTES not in _CHANGEABLE:
        words.append(PageWord.FIXED)
    return " ".join((f"{page[_DEPTH]}/{timeout}", *words, page.hex()))


def write_page(sysfs: str, text: str, value: str) -> None:
    """Write the page whose ``text`` was just read, with the fields of ``value``. Raises OSError."""
    *words, digits = text.split()
    if PageWord.FIXED in words or PageWord.PERF_MODE in words:
        raise PageError("the firmware or perf_mode controls this page")
    adapter = _Adapter(sysfs)
    adapter.send(_WRITE[adapter.version], change_page(bytes.fromhex(digits), value))


def change_page(page: bytes, value: str) -> bytes:
    """Return the page with the depth, timeout and flag of a value, and nothing else changed."""
    coalescing, *words = value.split()
    depth, timeout = map(int, coalescing.split("/"))
    changed = bytearray(page)
    struct.pack_into("<IB", changed, _TIMEOUT, timeout, depth)
    if len(page) == 4 * _MPI2[1]:
        flag = 0 if PageWord.OFF in words else _COALESCES
        changed[_FLAGS] = changed[_FLAGS] & ~_COALESCES | flag
    return bytes(changed)


class _Adapter:
    """An adapter and its device node. It gets a request only while it is operational."""

    def __init__(self, sysfs: str) -> None:
        driver, self._number = _read(f"{sysfs}/proc_name"), int(_read(f"{sysfs}/unique_id"))
        self._states = {f"{sysfs}/state": "running"}
        if driver == "mpi3mr":
            self.version, name = _MPI3, f"mpi3mrctl{self._number}"
            # mpi3mr_app.c: adp_state_show. mpt3sas has no such file: it refuses with EAGAIN.
            self._states[f"{sysfs}/adp_state"] = "1"
            device = _read(f"{sysfs}/device/{name}/bsg/{name}/dev")
            self._node = nvme.find_node(f"bsg/{name}", device)
        elif driver in _NODES:
            self.version, self._node = _MPI2, nvme.find_node(*_NODES[driver])
        else:
            raise PageError(f"no known way to the firmware behind {driver}")

    def send(self, action: int, data: bytes = b"") -> bytes:
        """Send one request, or raise PageError if not operational; return the header or page."""
        for file, operational in self._states.items():
            if (state := _read(file)) != operational:
                raise PageError(f"the adapter is not operational: {file} is {state}")
        descriptor = os.open(self._node, os.O_RDWR | os.O_CLOEXEC)
        try:
            send = _send3 if self.version is _MPI3 else _send2
            status, answer = send(descriptor, self._number, action, data)
        finally:
            os.close(descriptor)
        if status & _STATUS:
            raise PageError(f"the firmware refused (status {status & _STATUS:#06x})")
        if answer:
            page = (answer[0], answer[1], answer[3] & ~_ATTRIBUTES)
            if self.version is _MPI3:  # mpi3_config_page_header
                page = (answer[0], int.from_bytes(answer[4:6], "little"), answer[6])
            if (page, answer[2]) != (self.version, _PAGE_NUMBER):
                raise PageError(f"unknown page: version {page[0]}, {4 * page[1]} bytes")
        return answer


def _send3(descriptor: int, number: int, action: int, data: bytes) -> tuple[int, bytes]:
    """Send a request to mpi3mr; return the status, and the header or page."""
    version, words, kind = _MPI3
    size = 4 * words
    if action == _HEADER:
        version, words, size = 0, 0, 8
    head = (0, 0, 0x10, 0, 0, 0, 0, 0, 0)  # MPI3_FUNCTION_CONFIG
    request = _REQUEST3.pack(*head, version, _PAGE_NUMBER, kind, action, 0, words, 0, 0, 0)
    fields = [2, 0, 0, 0, number, 0, _TIMEOUT3_S, 0, 3, 0, 0, 0]  # MPI3MR_MPT_CMD
    fields += [_REQUEST, 0, 0, len(request), _DATA_OUT if data else _DATA_IN, 0, 0, size]
    packet = array.array("B", _PACKET.pack(*fields, _REPLY, 0, 0, _REPLY_BYTES))
    read, sent = 0 if data else size, array.array("B", request + data)
    received = array.array("B", bytes(read + _REPLY_BYTES))
    at, out, back = (buffer.buffer_info()[0] for buffer in (packet, sent, received))
    transport = [ord("Q"), 0, 2, len(packet), at, *(0,) * 6]  # BSG_SUB_PROTOCOL_SCSI_TRANSPORT
    transport += [0, len(sent), 0, len(received), out, back, 2000 * _TIMEOUT3_S, *(0,) * 15]
    fcntl.ioctl(descriptor, _SG_IO, bytearray(_TRANSPORT.pack(*transport)), True)
    answer = received.tobytes()
    # mpi3mr_bsg_in_reply_buf: a status descriptor (1), or a frame (2: mpi3_default_reply).
    offset = {1: 4, 2: 14}.get(answer[read])
    if offset is None:
        raise PageError("the firmware sent no reply")
    return int.from_bytes(answer[read + offset :][:2], "little"), answer[:read]


def _send2(descriptor: int, number: int, action: int, data: bytes) -> tuple[int, bytes]:
    """Send a request to mpt3sas; return the status, and the header or page."""
    version, words, kind = _MPI2
    size, length = (4 * words if action == _READ[_MPI2] else 0), words if action else 0
    head = (action, 0, 0, 4, *(0,) * 10)  # MPI2_FUNCTION_CONFIG
    request = _REQUEST2.pack(*head, version, length, _PAGE_NUMBER, kind, 0)
    contents = (bytes(_REPLY_BYTES), bytes(size), data)
    reply, page, sent = (array.array("B", content) for content in contents)
    at, into, out = (buffer.buffer_info()[0] for buffer in (reply, page, sent))
    sizes = (_REPLY_BYTES, size, len(data), 0, len(request) // 4)
    command = _COMMAND.pack(number, 0, 0, _TIMEOUT2_S, at, into, out, 0, *sizes)
    fcntl.ioctl(descriptor, _SEND, bytearray(command + request), True)
    answer = reply.tobytes()  # MPI2_CONFIG_REPLY
    header = answer[20:24] if action == _HEADER else b""
    return int.from_bytes(answer[14:16], "little"), page.tobytes() or header


def _read(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read().strip()
