"""The context in which a command runs an operation: it waits its turn, and can be stopped.

Ctrl-C and SIGTERM finish what is under way and start no more; a second one ends the command.
"""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

from hbatune.act import paths
from hbatune.agent.client import Turn, nudge
from hbatune.cli.text.notes import TextReporter
from hbatune.operations.context import Context, Stop

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def command_context(notes: TextReporter | None = None) -> Context:
    """Return the context of a command; ``notes`` are where it says what happens on the way."""
    return Context(
        lock=Turn,
        reporter=notes or TextReporter(),
        stoppable=_stoppable,
        nudge=lambda: nudge(paths.STATUS),
    )


class _Asked:
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
def _stoppable() -> Iterator[Stop]:
    """Take the signals that ask to stop for as long as the context lasts."""
    stop = _Asked()
    before = {number: signal.signal(number, stop.ask) for number in _SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
