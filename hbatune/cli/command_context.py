"""The context in which a command runs an operation: it waits for the lock, and can be stopped.

After Ctrl-C, SIGTERM or SIGHUP, the command finishes the writes in progress and starts no new
ones. A second signal ends it.
"""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

from hbatune.act.paths import Paths
from hbatune.agent.client import reload_daemon, take_lock_after_pass
from hbatune.operations.context import Context, Stop
from hbatune.text.notes import show_note
from hbatune.text.terminal import show_progress

# SIGHUP as well: a lost ssh session must not leave a change incomplete.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def make_context() -> Context:
    """Return the context of a command, which reports to standard error."""
    return Context(
        lock=take_lock_after_pass,
        note=show_note,
        progress=show_progress,
        stoppable=_handle_stop_signals,
        nudge=lambda: reload_daemon(Paths.status),
    )


@contextlib.contextmanager
def _handle_stop_signals() -> Iterator[Stop]:
    """Handle the stop signals until the context ends. A second signal ends the command."""
    requests: list[int] = []

    def handle_signal(number: int, frame: FrameType | None) -> None:
        if requests:
            raise KeyboardInterrupt
        requests.append(number)

    before = {number: signal.signal(number, handle_signal) for number in _SIGNALS}
    try:
        yield lambda: bool(requests)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
