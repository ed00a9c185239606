"""Calls counted over all processes, and the kill at one of them."""

import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path


class Counter:
    """Counts calls in the parent and its workers alike, and kills the run at the chosen one."""

    def __init__(self, at: int) -> None:
        self._count = multiprocessing.Value("i", 0)
        self._at = at
        self._run = os.getpid()

    @property
    def count(self) -> int:
        return int(self._count.value)

    def arm(self) -> None:
        self._run = os.getpid()

    def tick(self) -> None:
        """Pass one boundary; at the chosen one the whole run dies, its workers with it."""
        with self._count.get_lock():
            self._count.value += 1
            reached = self._count.value == self._at
        if reached:
            os.kill(self._run, signal.SIGKILL)
            signal.pause()


def boundaries(counter: Counter) -> Callable[[], None]:
    """Return what makes every write pass the counter, before it and after it."""

    def prepare() -> None:
        from hbatune.act import chain

        counter.arm()
        store, rename, sync = chain._store, os.rename, os.fsync

        def counted_store(path: str, text: str) -> int | None:
            counter.tick()
            errno = store(path, text)
            counter.tick()
            return errno

        def counted_rename(source: Path, target: Path) -> None:
            counter.tick()
            rename(source, target)
            counter.tick()

        def counted_sync(descriptor: int) -> None:
            counter.tick()
            sync(descriptor)

        chain._store = counted_store
        os.rename = counted_rename  # type: ignore[assignment]
        os.fsync = counted_sync  # type: ignore[assignment]

    return prepare
