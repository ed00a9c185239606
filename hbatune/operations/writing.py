"""How commands write: with progress, and stoppable between two disks.

Ctrl-C and SIGTERM finish what is under way and start no more; a second one ends the command.
"""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

from hbatune.act import paths
from hbatune.act.apply import Means
from hbatune.cli.text.progress import progress
from hbatune.policy.config import ActConfig
from hbatune.workers import Crew

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Stop:
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
def writing(what: str, disks: int, act: ActConfig, crew: Crew) -> Iterator[Means]:
    """Yield the means to have the crew write to so many disks, ``what`` being the word for it."""
    with _stoppable() as stop, progress(what, disks) as advance:
        yield Means(
            journal=paths.JOURNAL,
            claims=paths.CLAIMS,
            workers=act.workers,
            deadline=act.deadline_seconds,
            stop=stop,
            progress=lambda chain: advance(chain.target),
            crew=crew,
        )


@contextlib.contextmanager
def _stoppable() -> Iterator[_Stop]:
    """Take the signals that ask to stop for as long as the context lasts."""
    stop = _Stop()
    before = {number: signal.signal(number, stop.ask) for number in _SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
