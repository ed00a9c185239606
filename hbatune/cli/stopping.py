"""Ctrl-C and SIGTERM while settings are being written: finish what is under way, start no more."""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop:
    """Whether somebody asked to stop; a second time ends the command at once."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self) -> bool:
        """Whether somebody did."""
        return self.asked

    def ask(self, number: int, frame: FrameType | None) -> None:
        """Take a signal."""
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


@contextlib.contextmanager
def stoppable() -> Iterator[Stop]:
    """Take the signals that ask to stop for as long as the context lasts."""
    stop = Stop()
    before = {number: signal.signal(number, stop.ask) for number in _SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
