"""What the lab says while a person waits: one line a step, with the seconds it has taken."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


def note(text: str) -> None:
    """Show one line on stderr."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def step(title: str) -> Iterator[None]:
    """Show ``title`` on stderr while the body runs: counting on a terminal, else once."""
    begun = time.monotonic()
    stream = sys.stderr
    live = stream.isatty()
    ended = threading.Event()

    def seconds() -> int:
        return round(time.monotonic() - begun)

    def count() -> None:
        while not ended.wait(1):
            stream.write(f"\r{title} ... {seconds()} s")
            stream.flush()

    stream.write(f"{title} ..." if live else f"{title} ...\n")
    stream.flush()
    counter = threading.Thread(target=count, daemon=True)
    if live:
        counter.start()
    try:
        yield
    finally:
        ended.set()
        if live:
            counter.join()
            stream.write(f"\r{title} ... {seconds()} s\n")
            stream.flush()
