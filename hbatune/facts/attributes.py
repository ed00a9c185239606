"""Reading sysfs attributes: of one device, or of thousands in worker processes with deadlines.

Reads of ``queue/*`` and ``mq/*`` wait, uninterruptibly, behind a frozen queue (block/blk-sysfs.c:
queue_attr_show takes q->sysfs_lock); ``device/*`` still answers. So the device's state is looked
at first, and a device that does not answer costs only its own queue attributes.
"""

import errno
import os
import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from hbatune.facts.model import Attribute, Missing, Reason
from hbatune.workers import Died, Finished, Pool, Replied, Stuck

Attributes = dict[str, Attribute | Missing]

ABSENT = Missing(Reason.ABSENT, errno.ENOENT)
TIMED_OUT = Missing(Reason.UNREADABLE, errno.ETIMEDOUT)

_HEALTHY = {
    "running",
    "live",
}  # scsi_sysfs.c: sdev_states; nvme/host/sysfs.c: nvme_sysfs_show_state
_STATE = "device/state"
_SUSPENDED = "dm/suspended"
_GONE = {errno.ENOENT, errno.ENODEV, errno.ENXIO}
_PAGE = 4096
_STRIKES = 3  # so many that do not answer, and the rest of their adapter is not asked
_CHUNK = 32  # fewer are not worth another process
_HOST = re.compile(r".*?/host\d+(?=/)")


def read(sysfs_dir: str, attributes: Sequence[str]) -> Attributes:
    """Read the attributes below one device's directory, without a deadline.

    ``queue/iosched/*`` stands for every file of that directory, ``mq/`` for the names in it,
    blank-separated. Where the device's state says that its queue would not answer, what lies in
    ``queue/`` and ``mq/`` is not read and is ``Missing(UNREADABLE)`` with the state as its text.
    """
    return _read(sysfs_dir, tuple(attributes), None)


def survey(
    directories: Iterable[str], attributes: Sequence[str], *, deadline: float
) -> dict[str, Attributes]:
    """Read the same attributes below many directories, in parallel; ``deadline`` in seconds.

    A device that does not answer in time keeps what is outside of ``queue/`` and ``mq/``; the
    rest is ``Missing(UNREADABLE, ETIMEDOUT)``. After three of one SCSI host, the queues of that
    host's other devices are not read either.
    """
    return survey_each(dict.fromkeys(directories, tuple(attributes)), deadline=deadline)


def survey_each(
    requests: Mapping[str, tuple[str, ...]],
    *,
    deadline: float,
    avoid: Mapping[str, str] | None = None,
) -> dict[str, Attributes]:
    """Like ``survey``, with each directory's own attributes.

    ``avoid`` are directories whose queues are known not to answer, with the reason, which
    becomes the text of what is then missing.
    """
    return _Survey(requests, deadline, avoid or {}).run()


def _read(sysfs_dir: str, attributes: tuple[str, ...], instead: Missing | None) -> Attributes:
    """Read what is safe, then the queue, or put ``instead`` in the place of the queue's values."""
    try:
        directory = os.open(sysfs_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        return dict.fromkeys(attributes, _opened_not(error))
    try:
        safe, queue = _split(attributes)
        found: Attributes = {}
        for name in safe:
            _add(found, directory, name)
        if queue:
            instead = instead or _unhealthy(directory, found)
            if instead:
                found |= dict.fromkeys(queue, instead)
            else:
                for name in queue:
                    _add(found, directory, name)
    finally:
        os.close(directory)
    return found if os.path.isdir(sysfs_dir) else {name: _gone(found[name]) for name in found}


@lru_cache(maxsize=64)
def _split(attributes: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Split into what always answers and what may hang."""
    queue = [name for name in attributes if name.startswith(("queue/", "mq/"))]
    return [name for name in attributes if name not in queue], queue


def _unhealthy(directory: int, found: Attributes) -> Missing | None:
    state = found.get(_STATE) or _file(directory, _STATE)
    if isinstance(state, Attribute):
        return None if state.text in _HEALTHY else _refused(state.text)
    suspended = found.get(_SUSPENDED) or _file(directory, _SUSPENDED)
    if isinstance(suspended, Attribute) and suspended.text == "1":
        return _refused("suspended")
    return None


def _refused(state: str) -> Missing:
    return Missing(Reason.UNREADABLE, text=f"device state is {state}")


def _add(found: Attributes, directory: int, name: str) -> None:
    """Read one attribute, or all that a pattern stands for, into ``found``."""
    if name.endswith("/*"):
        folder = name[:-1]
        names = _names(directory, folder)
        if isinstance(names, list):
            for entry in names:
                found[folder + entry] = _file(directory, folder + entry)
    elif name.endswith("/"):
        names = _names(directory, name)
        found[name] = Attribute(" ".join(names), False) if isinstance(names, list) else names
    else:
        found[name] = _file(directory, name)


def _names(directory: int, folder: str) -> list[str] | Missing:
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    except OSError as error:
        return _missing(error)
    try:
        return sorted(os.listdir(descriptor))
    except OSError as error:
        return _missing(error)
    finally:
        os.close(descriptor)


def _file(directory: int, name: str) -> Attribute | Missing:
    try:
        file = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
    except OSError as error:
        return _missing(error)
    try:
        writable = bool(os.fstat(file).st_mode & 0o222)
        data = chunk = os.read(file, _PAGE)
        while len(chunk) == _PAGE:
            chunk = os.read(file, _PAGE)
            data += chunk
    except OSError as error:
        return _missing(error)
    finally:
        os.close(file)
    if "/vpd_pg" in name:
        return Attribute(data.hex(), writable)
    # Names come from the kernel and may hold any byte; JSON holds no lone surrogates.
    return Attribute(data.decode("utf-8", "backslashreplace").strip(), writable)


def _missing(error: OSError) -> Missing:
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return ABSENT
    return Missing(Reason.UNREADABLE, error.errno)


def _opened_not(error: OSError) -> Missing:
    reason = Reason.VANISHED if error.errno in _GONE else Reason.UNREADABLE
    return Missing(reason, error.errno)


def _gone(value: Attribute | Missing) -> Attribute | Missing:
    if isinstance(value, Missing) and value.errno in _GONE:
        return Missing(Reason.VANISHED, value.errno)
    return value


@dataclass(eq=False)
class _Chunk:
    """Directories with the index of their attributes; ``done`` of them have been answered."""

    requests: list[tuple[str, int]]
    instead: Missing | None = None
    done: int = 0


class _Survey:
    """One pass over many directories. Mutable: what waits, what came, who did not answer."""

    def __init__(
        self, requests: Mapping[str, tuple[str, ...]], deadline: float, avoid: Mapping[str, str]
    ) -> None:
        wanted = list(dict.fromkeys(requests.values()))
        index = {attributes: number for number, attributes in enumerate(wanted)}
        self._wanted = wanted
        self._deadline = deadline
        self._size = max(4, min(os.cpu_count() or 1, 16))
        self._results: dict[str, Attributes] = {}
        self._strikes: dict[str, int] = defaultdict(int)
        self._decoder = msgspec.msgpack.Decoder(Attributes)
        self._waiting: deque[_Chunk] = deque()
        for name in requests.keys() & avoid.keys():
            instead = Missing(Reason.UNREADABLE, text=avoid[name])
            self._waiting.append(_Chunk([(name, index[requests[name]])], instead))
        self._queue([(name, index[each]) for name, each in requests.items() if name not in avoid])

    def run(self) -> dict[str, Attributes]:
        with Pool(self._work, size=self._size, deadline=self._deadline) as pool:
            while self._waiting or pool.running:
                while self._waiting and pool.free:
                    chunk = self._spared(self._waiting.popleft())
                    if chunk.requests:
                        pool.start(chunk)
                for event in pool.wait():
                    match event:
                        case Replied(chunk, reply):
                            self._received(chunk, reply)
                        case Stuck(chunk):
                            self._lost(chunk, TIMED_OUT)
                        case Died(chunk, status):
                            text = f"the reading process ended with status {status}"
                            self._lost(chunk, Missing(Reason.UNREADABLE, text=text))
                        case Finished():
                            pass
        return self._results

    def _work(self, chunk: _Chunk) -> Iterator[bytes]:  # pragma: no cover  (runs in the worker)
        encode = msgspec.msgpack.Encoder().encode
        for directory, wanted in chunk.requests:
            yield encode(_read(directory, self._wanted[wanted], chunk.instead))

    def _queue(self, requests: list[tuple[str, int]], least: int = _CHUNK) -> None:
        length = max(least, -(-len(requests) // (4 * self._size)))
        for start in range(0, len(requests), length):
            self._waiting.append(_Chunk(requests[start : start + length]))

    def _received(self, chunk: _Chunk, reply: bytes) -> None:
        directory, _ = chunk.requests[chunk.done]
        chunk.done += 1
        self._results[directory] = self._decoder.decode(reply)

    def _lost(self, chunk: _Chunk, why: Missing) -> None:
        """Ask the one that did not answer again without its queue, and the rest elsewhere."""
        if chunk.done == len(chunk.requests):
            return
        directory, wanted = chunk.requests[chunk.done]
        rest = chunk.requests[chunk.done + 1 :]
        if chunk.instead is None:
            self._strikes[_adapter(directory)] += 1
            self._waiting.append(_Chunk([(directory, wanted)], why))
            self._queue(rest, least=1)
        else:
            self._results[directory] = dict.fromkeys(self._wanted[wanted], why)
            if rest:
                self._waiting.append(_Chunk(rest, chunk.instead))

    def _spared(self, chunk: _Chunk) -> _Chunk:
        """Take out of the chunk what hangs on an adapter that has stopped answering."""
        if chunk.instead is not None or not self._strikes:
            return chunk
        struck = [
            request
            for request in chunk.requests
            if self._strikes.get(_adapter(request[0]), 0) >= _STRIKES
        ]
        if struck:
            text = "other devices of this adapter did not answer"
            self._waiting.append(_Chunk(struck, Missing(Reason.UNREADABLE, errno.ETIMEDOUT, text)))
            chunk.requests = [request for request in chunk.requests if request not in struck]
        return chunk


def _adapter(directory: str) -> str:
    """Return what a directory shares with the others of its SCSI host or NVMe controller."""
    host = _HOST.match(directory)
    return host[0] if host else os.path.dirname(directory)
