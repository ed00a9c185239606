"""The work of the daemon's processes: passes and probes, whose modules only those processes load.

The daemon itself stays small: it listens, and has no use for what looks, plans and writes. Since a
process loads them later, they have to be of the daemon's own version: where the installed files
were replaced since it started, passes and probes are refused until it is started again. What is to
be put back as it stops is put back by the version that is installed by then.
"""

import os
import sys
from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING

import msgspec

import hbatune
from hbatune import children
from hbatune.agent.orders import NewEndpointProbe, Order, PassReport, decode_report, encode_report
from hbatune.errors import HbatuneError
from hbatune.policy.config import Config
from hbatune.policy.profile import Profile
from hbatune.workers.worker import die_with_parent

if TYPE_CHECKING:
    from hbatune.agent.passes import Memory

RESTORE_TIMEOUT_S = 110.0
"""Seconds for another version to restore the values: within ``loop.PUTTING_BACK``."""

encode_order = msgspec.msgpack.Encoder().encode
_decode_order = msgspec.msgpack.Decoder(Order).decode


class PassMaker:
    """Makes one pass after another in one process, from and to encoded messages."""

    def __init__(self, config: Config, profile: Profile) -> None:
        self._config = config
        self._profile = profile
        self._memory: Memory | None = None

    def make(self, sent: bytes) -> bytes:
        """Make the pass of an order (``encode_order``); return its report (``decode_report``)."""
        if _is_replaced():
            return encode_report(_REPLACED)
        from hbatune.agent import passes

        order = _decode_order(sent)
        if self._memory is not None and order.names is None:
            # A look at everything begins with nothing, as in a new process.
            self._memory.close()
            self._memory = None
        self._memory = self._memory or passes.Memory()
        return passes.run(order, self._config, self._profile, self._memory)

    def rest(self) -> None:
        """Give back memory, since nothing has been asked for lately."""
        if self._memory is not None:
            self._memory.last.renew_worker()


def put_back(config: Config) -> bytes:
    """Put back everything in the journal; return the report, encoded. Nothing is raised."""
    if _is_replaced():
        return encode_report(PassReport(error=_put_back_by_successor()))
    from hbatune.agent import passes

    return passes.put_back(config)


def put_back_for_predecessor() -> None:
    """Put back everything for a daemon of the version that was installed before, which runs this.

    Prints why something could not be put back, and nothing where all is well. Older daemons call
    this by its name: it stays.
    """
    from hbatune.policy.chosen import configuration

    try:
        config = configuration()
    except HbatuneError:
        config = Config()  # the daemon's own may be older still; a mistake must not keep the values
    error = decode_report(put_back(config)).error
    if error is not None:
        print(error)


def _put_back_by_successor() -> str | None:
    """Have the version that is installed now put everything back; return why not, if so.

    In an interpreter of its own: what this process has in memory is the old version's.
    """
    try:
        done = children.run(
            [sys.executable, "-P", "-c", _BY_SUCCESSOR],
            RESTORE_TIMEOUT_S,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            # Given up, it must not go on writing.
            prepare=partial(die_with_parent, os.getpid()),
        )
    except TimeoutError as error:
        return f"{_REPLACED.error}, and restoring the values failed: {error.strerror}"
    except OSError:
        return _BROKEN
    if done.returncode:
        return _BROKEN
    return done.stdout.decode(errors="replace").strip() or None


_BY_SUCCESSOR = "from hbatune.agent import work; work.put_back_for_predecessor()"


def probe(ids: Collection[str], config: Config, profile: Profile, seconds: float) -> bytes:
    """Probe one new endpoint of each kind; return the result, encoded. Nothing is raised."""
    if _is_replaced():
        return msgspec.json.encode(NewEndpointProbe(error=_REPLACED.error))
    from hbatune.agent import probing

    return probing.probe(ids, config, profile, seconds)


def _signature() -> tuple[int, int] | None:
    """Return a value that changes when the package is installed anew."""
    try:
        found = os.stat(hbatune.__file__)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


_INSTALLED = _signature()
_REPLACED = PassReport(
    error="hbatune was installed anew since the daemon started",
    hint="systemctl restart hbatune",
)
_BROKEN = f"{_REPLACED.error}, and what is installed now does not run: install it again"


def _is_replaced() -> bool:
    return _signature() != _INSTALLED
