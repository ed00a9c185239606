"""Evidence that the journal is complete: a seal for each line, and a trace in /run.

A seal is the checksum of a line, so damage costs only the line that it hits. The trace is the
sequence number of the journal's last state, on the memory file system. A journal that is missing,
or has a lower number, has lost original values of this boot. The trace is written after the journal
is durable, so it may lag and never lead. One that cannot be written or read proves nothing.
"""

import os
import re
import time
from binascii import crc32
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Raw

from hbatune import loader
from hbatune.act import files

CHECKSUM_FIELD = b',"sum":"'
_ENTRIES, _COPY = b',"entries":[', b'],"copy":'


def seal(text: bytes) -> bytes:
    """Return the JSON object with its checksum as the last field."""
    body = text[:-1]
    return b'%b,"sum":"%08x"}' % (body, crc32(body))


def unseal(text: bytes) -> bytes | None:
    """Return the sealed JSON object without its checksum, or None if it is damaged."""
    body, _, checksum = text.rpartition(CHECKSUM_FIELD)
    return body + b"}" if checksum == b'%08x"}' % crc32(body) else None


def find_intact_objects(text: bytes, field: bytes) -> list[bytes]:
    """Return the intact objects in a damaged line; ``field`` is the name of their first field."""
    # At each position where an object may begin: a damaged one must not hide the next.
    pattern = rb'(?=(\{"%b":[^\n]*?,"sum":"[0-9a-f]{8}"\}))' % field
    return [body for candidate in re.findall(pattern, text) if (body := unseal(candidate))]


def seal_document(document: bytes, sequence: int) -> bytes:
    """Return the JSON object sealed, with this ``sequence``.

    The first line has all fields except the entries, each entry has a line, and the last line
    repeats the first as a copy. The last field of each is its checksum.
    """
    fields = msgspec.json.decode(document, type=dict[str, Raw])
    entries = msgspec.json.decode(fields.pop("entries"), type=list[Raw])
    fields["sequence"] = Raw(b"%d" % sequence)
    head = seal(msgspec.json.encode(fields))
    lines = b",\n".join([seal(bytes(entry)) for entry in entries])
    return b"%b%b\n%b\n%b%b}\n" % (head[:-1], _ENTRIES, lines, _COPY, head)


def open_document(data: bytes) -> tuple[bytes | None, list[bytes], list[tuple[int, bytes]]]:
    """Return the head, which has all fields except the entries, the entries, and damaged lines."""
    lines = data.removesuffix(b"\n").split(b"\n")
    first, last = lines[0], lines[-1]
    copy = unseal(last.rpartition(_COPY)[2].removesuffix(b"}"))
    heads = [unseal(first.partition(_ENTRIES)[0] + b"}"), copy]
    entries, damaged = list[bytes](), list[tuple[int, bytes]]()
    for number, line in enumerate(lines, 1):
        entry = unseal(line.removesuffix(b","))
        if entry is not None:
            entries.append(entry)
            continue
        if number == 1:
            intact = heads[0] is not None and line.endswith(_ENTRIES)
        elif number == len(lines):
            intact = heads[1] is not None and line.startswith(_COPY)
        else:
            intact = not line and not entries
        if not intact:
            entries += find_intact_objects(line, b"id")
            damaged.append((number, line))
    return heads[0] or heads[1], entries, damaged


def with_entries(head: bytes, entries: list[bytes]) -> bytes:
    """Return one JSON object in the order of its encoding: the entries come second."""
    position = head.find(b',"')
    return b"%b%b%b]%b" % (head[:position], _ENTRIES, b",".join(entries), head[position:])


def make_sequence() -> int:
    """Return a number that is higher than all before it in this boot."""
    # Nanoseconds since boot, including suspend (clock_gettime(2)). No counter has to be read first,
    # and no state from a restored backup can be as high.
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def find_trace(journal: Path) -> Path:
    """Return the path of the trace: below /run for a journal below /var/lib, else next to it."""
    return Path(str(journal.with_suffix(".sequence")).replace("/var/lib/", "/run/"))


def read_trace(journal: Path, boot_id: str) -> int | None:
    """Return the sequence number of the journal's last state in this boot, or None if unknown."""
    with suppress(OSError, loader.UnusableFileError, ValueError):
        boot, _, number = loader.read_bytes(find_trace(journal), 4096).rpartition(b" ")
        if boot == boot_id.encode():
            return int(number)
    return None


def write_trace(journal: Path, boot_id: str, sequence: int) -> None:
    """Write the number of the state that was just made durable; a failure is ignored."""
    trace, data = find_trace(journal), b"%b %020d\n" % (boot_id.encode(), sequence)
    with suppress(OSError):
        try:
            # In place: a full file system has no space for a second file.
            descriptor = os.open(trace, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            files.make_folder(trace.parent)
            files.publish(trace, data, mode=files.READABLE_MODE)
            return
        with loader.close_on_exit(descriptor):
            os.pwrite(descriptor, data, 0)


def remove_trace(journal: Path) -> bool:
    """Remove the trace before an empty journal is removed; return whether it is absent now."""
    try:
        find_trace(journal).unlink(missing_ok=True)
    except OSError:
        return False
    return True
