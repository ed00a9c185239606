"""Read many devices in parallel, in worker processes with deadlines."""

import errno
import os
import re
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping

import msgspec
from msgspec import Struct

from hbatune.errors import HbatuneError
from hbatune.facts.attributes import Attributes, read_attributes
from hbatune.facts.model import Missing, MissingText, Reason
from hbatune.facts.names import group_items
from hbatune.workers import Died, Pool, Replied, Stuck, Unstarted, WorkerPool

Requests = Mapping[str, tuple[str, ...]]  # attributes to read, by directory

TIMED_OUT = Missing(Reason.UNREADABLE, errno.ETIMEDOUT)

_HOST = r".*?/host\d+(?=/)"
_STRIKES = 3  # after this many unresponsive devices, the other devices of their adapter are skipped
_CHUNK = 32  # minimum number of directories for each chunk: fewer are not worth another process


class NoWorkerError(HbatuneError):
    """No process can be started to read the devices, so no facts are known."""

    def __init__(self, number: int) -> None:
        super().__init__(
            f"no process can be started to read the devices: {os.strerror(number)}",
            hint="raise the limits of processes, memory or open files (ulimit, TasksMax=)",
        )
        self.errno = number


def survey_requests(
    requests: Requests,
    *,
    deadline: float,
    avoid: Mapping[str, str] | None = None,
    worker_pool: WorkerPool | None = None,
) -> dict[str, Attributes]:
    """Read the attributes below many directories, in parallel; ``deadline`` in seconds.

    If a device does not answer in time, its attributes outside of ``queue/`` and ``mq/`` are still
    read; the others are ``Missing(UNREADABLE, ETIMEDOUT)``. After three such devices of one SCSI
    host, the queues of that host's other devices are skipped. NoWorkerError if no process can be
    started.

    ``avoid`` maps directories whose queues do not answer to the text of their ``Missing``
    attributes. The ``worker_pool``, if given, does the reading.
    """
    return _Survey(requests, deadline, avoid or {}).run(worker_pool)


class _Chunk(Struct, eq=False):
    """Directories with the index of their attributes; ``done`` of them have been answered.

    An index, since thousands of directories share a few tuples of names. ``last`` are, by index,
    the latest attributes received.
    """

    requests: list[tuple[str, int]]
    instead: Missing | None = None
    done: int = 0
    last: dict[int, Attributes] = {}


class _Reply(Struct, frozen=True, array_like=True):
    """A worker's reply for a directory: ``whole``, or only the differences from the last one.

    Thousands of LUNs differ in a few attributes. Their common attributes are one shared object.
    """

    attributes: Attributes
    whole: bool


class _Reader(Struct, frozen=True):
    """Reads the attributes of a chunk's directories; in a worker."""

    wanted: tuple[tuple[str, ...], ...]

    def __call__(self, chunk: _Chunk) -> Iterator[bytes]:  # pragma: no cover  (in the worker)
        """Yield a ``_Reply`` for each directory, encoded."""
        encode = msgspec.msgpack.Encoder().encode
        last: dict[int, Attributes] = {}
        for directory, wanted in chunk.requests:
            attributes = read_attributes(directory, self.wanted[wanted], instead=chunk.instead)
            before = last.get(wanted, {})
            last[wanted] = attributes
            is_complete = before.keys() != attributes.keys()
            if not is_complete:
                attributes = {n: value for n, value in attributes.items() if value != before[n]}
            yield encode(_Reply(attributes, is_complete))


class _Survey:
    """A parallel read of many directories. Mutable: waiting chunks, results, strikes by adapter."""

    def __init__(self, requests: Requests, deadline: float, avoid: Mapping[str, str]) -> None:
        self._wanted = list(dict.fromkeys(requests.values()))
        index = {attributes: number for number, attributes in enumerate(self._wanted)}
        self._deadline = deadline
        # More than one even on one CPU: a hanging worker is lost until its deadline.
        self._size = max(4, min(os.cpu_count() or 1, 16))
        self._results: dict[str, Attributes] = {}
        self._strikes: dict[str, int] = defaultdict(int)
        self._decoder = msgspec.msgpack.Decoder(_Reply)
        self._waiting: deque[_Chunk] = deque()
        # Hanging queues come first: without reading them, their devices answer immediately.
        for name in requests.keys() & avoid.keys():
            instead = Missing(Reason.UNREADABLE, text=avoid[name])
            self._waiting.append(_Chunk([(name, index[requests[name]])], instead))
        self._add_chunks([(name, index[n]) for name, n in requests.items() if name not in avoid])

    def run(self, worker_pool: WorkerPool | None) -> dict[str, Attributes]:
        reader = _Reader(tuple(self._wanted))
        means = Pool(reader, size=self._size, deadline=self._deadline, worker_pool=worker_pool)
        with means as pool:
            while self._waiting or pool.running:
                while self._waiting and pool.free:
                    chunk = self._without_failed_adapters(self._waiting.popleft())
                    if chunk.requests:
                        pool.start(chunk)
                for event in pool.wait():
                    match event:
                        case Replied(chunk, reply):
                            self._store_reply(chunk, reply)
                        case Stuck(chunk):
                            self._retry_device(chunk, TIMED_OUT)
                        case Died(chunk, status):
                            text = MissingText.READER_DIED.format(status)
                            self._retry_device(chunk, Missing(Reason.UNREADABLE, text=text))
                        case Unstarted(_, number):
                            raise NoWorkerError(number)
        return self._results

    def _add_chunks(self, requests: list[tuple[str, int]], min_length: int = _CHUNK) -> None:
        # Four chunks for each worker, so a worker with slow devices does not keep the others idle.
        length = max(min_length, -(-len(requests) // (4 * self._size)))
        for start in range(0, len(requests), length):
            self._waiting.append(_Chunk(requests[start : start + length]))

    def _store_reply(self, chunk: _Chunk, reply: bytes) -> None:
        directory, wanted = chunk.requests[chunk.done]
        chunk.done += 1
        update = self._decoder.decode(reply)
        last = {} if update.whole else chunk.last.get(wanted, {})
        chunk.last[wanted] = self._results[directory] = last | update.attributes

    def _retry_device(self, chunk: _Chunk, why: Missing) -> None:
        # Replies come one directory at a time, so the first unanswered directory hung. It is read
        # again without its queue, and the remaining ones elsewhere.
        if chunk.done == len(chunk.requests):
            return
        directory, wanted = chunk.requests[chunk.done]
        remaining = chunk.requests[chunk.done + 1 :]
        if chunk.instead is None:
            self._strikes[_get_adapter_dir(directory)] += 1
            self._waiting.append(_Chunk([(directory, wanted)], why))
            self._add_chunks(remaining, min_length=1)
        else:
            self._results[directory] = dict.fromkeys(self._wanted[wanted], why)
            if remaining:
                self._waiting.append(_Chunk(remaining, chunk.instead))

    def _without_failed_adapters(self, chunk: _Chunk) -> _Chunk:
        if chunk.instead is not None or not self._strikes:
            return chunk
        groups = group_items(chunk.requests, lambda request: self._has_failed(request[0]))
        if failed := groups.get(True):
            missing = Missing(Reason.UNREADABLE, errno.ETIMEDOUT, MissingText.SILENT_ADAPTER)
            self._waiting.append(_Chunk(failed, missing))
            chunk.requests = groups.get(False, [])
        return chunk

    def _has_failed(self, directory: str) -> bool:
        return self._strikes.get(_get_adapter_dir(directory), 0) >= _STRIKES


def _get_adapter_dir(directory: str) -> str:
    host = re.match(_HOST, directory)
    return host[0] if host else os.path.dirname(directory)
