"""Reads many devices in parallel, in worker processes with deadlines.

A device that does not answer costs its own queue attributes and nothing else.
"""

import errno
import os
import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct

from hbatune.errors import HbatuneError
from hbatune.facts.attributes import Attributes, read
from hbatune.facts.model import Missing, Reason
from hbatune.workers import Died, Finished, Pool, Replied, Stuck, Unstarted, WorkerPool

TIMED_OUT = Missing(Reason.UNREADABLE, errno.ETIMEDOUT)

_HOST = r".*?/host\d+(?=/)"
_STRIKES = 3  # after this many that do not answer, the rest of their adapter is not read
_CHUNK = 32  # directories at least for each chunk: fewer are not worth another process


class NoWorkerError(HbatuneError):
    """No process can be started to read the devices, so nothing is known of them."""

    def __init__(self, number: int) -> None:
        super().__init__(
            f"no process can be started to read the devices: {os.strerror(number)}",
            hint="make room for processes, memory or open files (ulimit, TasksMax=)",
        )
        self.errno = number


def survey(
    directories: Iterable[str], attributes: Sequence[str], *, deadline: float
) -> dict[str, Attributes]:
    """Read the same attributes below many directories, in parallel; ``deadline`` in seconds.

    Of a device that does not answer in time the attributes outside of ``queue/`` and ``mq/`` are
    still read; the others are ``Missing(UNREADABLE, ETIMEDOUT)``. After three of one SCSI host,
    the queues of that host's other devices are not read either. NoWorkerError if no process can
    be started.
    """
    return survey_each(dict.fromkeys(directories, tuple(attributes)), deadline=deadline)


def survey_each(
    requests: Mapping[str, tuple[str, ...]],
    *,
    deadline: float,
    avoid: Mapping[str, str] | None = None,
    worker_pool: WorkerPool | None = None,
) -> dict[str, Attributes]:
    """Like ``survey``, with each directory's own attributes.

    ``avoid`` are directories whose queues are known not to answer, with the reason, which
    becomes the text of their ``Missing`` attributes. The ``worker_pool``, if given, does the
    reading.
    """
    return _Survey(requests, deadline, avoid or {}).run(worker_pool)


class _Chunk(Struct, eq=False):
    """Directories with the index of their attributes; ``done`` of them have been answered.

    An index, since thousands of directories share a few tuples of names. ``last`` are by index the
    attributes that were answered last.
    """

    requests: list[tuple[str, int]]
    instead: Missing | None = None
    done: int = 0
    last: dict[int, Attributes] = {}


class _Reply(Struct, frozen=True, array_like=True):
    """What a worker sends of a directory: ``whole``, or what is not as in the last one like it.

    Thousands of LUNs differ in a few attributes. What they share is one object for all of them.
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
            found = read(directory, self.wanted[wanted], instead=chunk.instead)
            before = last.get(wanted, {})
            last[wanted] = found
            if whole := before.keys() != found.keys():
                new = found
            else:
                new = {name: each for name, each in found.items() if each != before[name]}
            yield encode(_Reply(new, whole))


class _Survey:
    """One pass over many directories. Mutable: chunks that wait, results, strikes by adapter."""

    def __init__(
        self, requests: Mapping[str, tuple[str, ...]], deadline: float, avoid: Mapping[str, str]
    ) -> None:
        wanted = list(dict.fromkeys(requests.values()))
        index = {attributes: number for number, attributes in enumerate(wanted)}
        self._wanted = wanted
        self._deadline = deadline
        # More than one even on one CPU: a worker that hangs is lost until its deadline.
        self._size = max(4, min(os.cpu_count() or 1, 16))
        self._results: dict[str, Attributes] = {}
        self._strikes: dict[str, int] = defaultdict(int)
        self._decoder = msgspec.msgpack.Decoder(_Reply)
        self._waiting: deque[_Chunk] = deque()
        # Queues known to hang come first: read without them, they answer at once.
        for name in requests.keys() & avoid.keys():
            instead = Missing(Reason.UNREADABLE, text=avoid[name])
            self._waiting.append(_Chunk([(name, index[requests[name]])], instead))
        self._queue([(name, index[each]) for name, each in requests.items() if name not in avoid])

    def run(self, worker_pool: WorkerPool | None) -> dict[str, Attributes]:
        reader = _Reader(tuple(self._wanted))
        with Pool(
            reader, size=self._size, deadline=self._deadline, worker_pool=worker_pool
        ) as pool:
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
                        case Unstarted(_, number):
                            raise NoWorkerError(number)
                        case Finished():
                            pass
        return self._results

    def _queue(self, requests: list[tuple[str, int]], least: int = _CHUNK) -> None:
        # Four chunks for each worker, so that one with slow devices does not keep the others idle.
        length = max(least, -(-len(requests) // (4 * self._size)))
        for start in range(0, len(requests), length):
            self._waiting.append(_Chunk(requests[start : start + length]))

    def _received(self, chunk: _Chunk, reply: bytes) -> None:
        directory, wanted = chunk.requests[chunk.done]
        chunk.done += 1
        found = self._decoder.decode(reply)
        last = {} if found.whole else chunk.last.get(wanted, {})
        chunk.last[wanted] = self._results[directory] = last | found.attributes

    def _lost(self, chunk: _Chunk, why: Missing) -> None:
        """Read the device that did not answer again, without its queue, and the rest elsewhere.

        Replies come one directory at a time, so the first unanswered one is the one that hung.
        """
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
        """Take the devices of an adapter that has stopped answering out of the chunk."""
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
    """Return the directory that the devices of a SCSI host or NVMe controller have in common."""
    host = re.match(_HOST, directory)
    return host[0] if host else os.path.dirname(directory)
