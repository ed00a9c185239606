"""The work of the daemon's processes: passes, whose modules only those processes load.

The daemon needs little memory, since it does not load the modules that scan, plan and write. A
process loads them later, so they must have the daemon's version. If the installed files were
replaced after the daemon started, passes are refused until it is restarted. The currently installed
version restores the values when the daemon stops.
"""

import os
import sys
from functools import partial
from typing import TYPE_CHECKING

import hbatune
from hbatune import children
from hbatune.agent import orders
from hbatune.agent.orders import PassReport, encode_report
from hbatune.errors import HbatuneError
from hbatune.policy.config import Config
from hbatune.policy.profile import Profile
from hbatune.workers.worker import die_with_parent

if TYPE_CHECKING:
    from hbatune.agent.passes import Memory

RESTORE_TIMEOUT_S = 110.0
"""Seconds for another version to restore the values: less than ``loop.RESTORE_ALL_TIMEOUT_S``."""


class ReplacedError(HbatuneError):
    """The package was reinstalled after the daemon started, with a further ``consequence``."""

    def __init__(self, consequence: str = "") -> None:
        message = f"hbatune was reinstalled after the daemon started{consequence}"
        super().__init__(message, hint="systemctl restart hbatune")


class PassMaker:
    """Makes consecutive passes in one process, with encoded orders and reports."""

    def __init__(self, config: Config, profile: Profile) -> None:
        self._config = config
        self._profile = profile
        self._memory: Memory | None = None

    def make(self, sent: bytes) -> bytes:
        """Make the pass of an encoded order. Return its encoded report (``decode_report``)."""
        if _is_replaced():
            error = ReplacedError()
            return encode_report(PassReport(error=error.message, hint=error.hint))
        from hbatune.agent import passes

        order = orders.decode_order(sent)
        if self._memory is not None and order.names is None:
            # A full scan starts with an empty memory, as in a new process.
            self._memory.close()
            self._memory = None
        self._memory = self._memory or passes.Memory()
        return passes.run(order, self._config, self._profile, self._memory)

    def rest(self) -> None:
        """Release memory, since no request has arrived recently."""
        if self._memory is not None:
            self._memory.last.renew_worker()


def restore_all(config: Config) -> str | None:
    """Restore all values in the journal. Return the error, if any. Raises nothing."""
    if _is_replaced():
        return _restore_by_successor()
    from hbatune.agent import passes

    return passes.restore_all(config)


def put_back_for_predecessor() -> None:
    """Restore all values for a daemon of the previously installed version, which calls this.

    Print the reason if values could not be restored, otherwise nothing. Older daemons call this
    function by name, so it must keep its name.
    """
    from hbatune.policy.config import load_configuration

    try:
        config = load_configuration()
    except HbatuneError:
        # The daemon's own configuration may be even older. An error must not prevent the restore.
        config = Config()
    error = restore_all(config)
    if error is not None:
        print(error)


def _restore_by_successor() -> str | None:
    """Restore all values by the installed version, in another interpreter. Return the error."""
    broken = ReplacedError(", and what is installed now does not run: install it again")
    try:
        done = children.run(
            [sys.executable, "-P", "-c", _BY_SUCCESSOR],
            RESTORE_TIMEOUT_S,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            # It must not continue to write after a timeout.
            prepare=partial(die_with_parent, os.getpid()),
        )
    except TimeoutError as error:
        return ReplacedError(f", and restoring the values failed: {error.strerror}").message
    except OSError:
        return broken.message
    if done.returncode:
        return broken.message
    return done.stdout.decode(errors="replace").strip() or None


_BY_SUCCESSOR = "import hbatune.agent.work; hbatune.agent.work.put_back_for_predecessor()"


def _read_signature() -> tuple[int, int] | None:
    """Return a value that changes when the package is reinstalled."""
    try:
        status = os.stat(hbatune.__file__)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


_INSTALLED = _read_signature()


def _is_replaced() -> bool:
    return _read_signature() != _INSTALLED
