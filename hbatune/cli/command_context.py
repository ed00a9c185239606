"""The context in which a command runs an operation: it waits for the lock, and can be stopped.

After Ctrl-C, SIGTERM or SIGHUP, the writes under way are finished and no new ones are started; a
second signal ends the command.
"""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

from hbatune.act import paths
from hbatune.agent.client import LockAfterPass, nudge
from hbatune.operations.context import Context, Stop
from hbatune.text.notes import TextReporter

# SIGHUP as well: an ssh session that breaks must not leave settings half-way.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def command_context(notes: TextReporter | None = None) -> Context:
    """Return the context of a command; it reports to ``notes``, or to standard error."""
    return Context(
        lock=LockAfterPass,
        reporter=notes or TextReporter(),
        stoppable=_handle_stop_signals,
        nudge=lambda: nudge(paths.STATUS),
    )


class _StopRequest:
    """Whether a signal has asked to stop; a second one ends the command at once."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self) -> bool:
        """Return whether a signal has asked."""
        return self.asked

    def ask(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


@contextlib.contextmanager
def _handle_stop_signals() -> Iterator[Stop]:
    """Handle the signals that ask to stop until the context ends."""
    stop = _StopRequest()
    before = {number: signal.signal(number, stop.ask) for number in _SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
