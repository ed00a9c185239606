"""The writes to one target, in order, as a worker does them: the one place that writes settings.

A chain is guarded by what its plan saw: where somebody has changed a value since, that row is a
conflict and is left alone, and so is what was planned upon it. Each write is read back and counts
only when the typed value is the one that was asked for.
"""

import errno
import os
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from msgspec import Struct, msgpack

from hbatune.act.claims import Claimer
from hbatune.act.nvme import set_feature
from hbatune.facts.attributes import read, read_again
from hbatune.facts.model import Attribute, Missing, Reason
from hbatune.facts.nvme import FEATURE
from hbatune.rows import Outcome
from hbatune.settings.table import SCHEDULER_TUNABLES, Setting, Value, setting

BUSY_TRIES = 6
BUSY_PAUSE = 0.02
"""Seconds before the second try on EBUSY, doubled each time: newer kernels try-lock the tag set
of an adapter for nr_requests and scheduler (block/blk-sysfs.c)."""


class Step(Struct, frozen=True):
    """One write: the setting, the value to set, and the value that the plan saw.

    ``expected`` is None for what the plan could not see: a tunable of a scheduler to come.
    """

    setting: str
    value: Value
    expected: Value | None


class Chain(Struct, frozen=True):
    """The steps of one target in their order; ``sysfs`` is the directory of its attributes."""

    target: str
    id: str
    adapter: str | None
    map: str | None
    sysfs: str
    steps: tuple[Step, ...]


class Result(Struct, frozen=True):
    """What came of one step; ``found`` is the typed value read last.

    ``said`` is the device's own word for a refusal, for which there is no errno.
    """

    setting: str
    outcome: Outcome
    errno: int | None = None
    found: Value | None = None
    said: str | None = None


# A pickle of a result takes five times as long.
_encoder = msgpack.Encoder()
_decoder = msgpack.Decoder(Result)


def encode(result: Result) -> bytes:
    """Return the result as a worker sends it."""
    return _encoder.encode(result)


def decode(reply: bytes) -> Result:
    """Return the result that a worker sent."""
    return _decoder.decode(reply)


class ChainWriter:
    """Writes chains; one instance in each worker process."""

    def __init__(self, claims: Path) -> None:
        self._claims = claims
        self._claimer: Claimer | None = None

    def __call__(self, chain: Chain) -> Iterator[bytes]:
        """Do the steps in their order and yield each one's result, encoded (``decode``)."""
        if self._claimer is None:
            self._claimer = Claimer(self._claims)
        self._claimer.claim(chain.target, chain.id)
        yield from map(encode, write(chain))
        self._claimer.release()


def write(chain: Chain) -> Iterator[Result]:
    """Do the steps of a chain in their order and yield each one's result."""
    seen = _look(chain)
    conflicts = _conflicts(chain, seen)
    reset: set[str] = set()  # settings that a write of this chain may have changed
    for step in chain.steps:
        kind = setting(step.setting)
        disturbed = _among(step.setting, reset)
        now = _look_again(chain, kind) if disturbed else seen[step.setting]
        if isinstance(now, Missing):
            yield _unreadable(chain, step, now)
        elif step.setting in conflicts:
            yield Result(step.setting, Outcome.CONFLICT, found=now)
        elif now == step.value:
            # Right already: nothing was to be done, or an earlier write has done it.
            yield Result(step.setting, Outcome.WRITTEN if disturbed else Outcome.KEPT, found=now)
        else:
            reset.update(kind.resets)
            yield _write(chain, step, kind)


def _conflicts(chain: Chain, seen: Mapping[str, Value | Missing]) -> set[str]:
    """Return the settings that somebody changed since the plan, and what was planned upon them."""
    changed: set[str] = set()
    for step in chain.steps:
        now = seen[step.setting]
        if isinstance(now, Missing) or step.expected is None:
            continue
        if now not in (step.expected, step.value):
            changed.add(step.setting)
    upon = {name for conflict in changed for name in setting(conflict).resets}
    return changed | {step.setting for step in chain.steps if _among(step.setting, upon)}


def _among(name: str, settings: Collection[str]) -> bool:
    return name in settings or (
        name.startswith(SCHEDULER_TUNABLES) and SCHEDULER_TUNABLES in settings
    )


def _write(chain: Chain, step: Step, kind: Setting) -> Result:
    refused = _set(chain.sysfs, kind.path, kind.text(step.value))
    now = _look_again(chain, kind)
    if isinstance(now, Missing):
        return _unreadable(chain, step, now)
    if isinstance(refused, str):
        return Result(step.setting, Outcome.REFUSED, None, now, refused)
    if refused is not None:
        return Result(step.setting, Outcome.REFUSED, refused, now)
    outcome = Outcome.WRITTEN if now == step.value else Outcome.IGNORED
    return Result(step.setting, outcome, found=now)


def _unreadable(chain: Chain, step: Step, missing: Missing) -> Result:
    if missing.reason is Reason.VANISHED or not os.path.isdir(chain.sysfs):
        return Result(step.setting, Outcome.VANISHED, missing.errno)
    return Result(step.setting, Outcome.REFUSED, missing.errno or errno.EINVAL)


def _set(sysfs: str, path: str, text: str) -> int | str | None:
    """Set what is below the directory and return None, or the errno or words of its refusal."""
    if not path.startswith(FEATURE):
        return _store(f"{sysfs}/{path}", text)
    try:
        return set_feature(sysfs, path, text)
    except OSError as error:
        return error.errno


def _store(path: str, text: str) -> int | None:
    """Write the text in one write(2) and return None, or the errno of its refusal."""
    for attempt in range(BUSY_TRIES):
        if attempt:
            time.sleep(BUSY_PAUSE * 2 ** (attempt - 1))
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        except OSError as error:
            return error.errno
        try:
            os.write(descriptor, text.encode())
        except OSError as error:
            if error.errno != errno.EBUSY:
                return error.errno
        else:
            return None
        finally:
            os.close(descriptor)
    return errno.EBUSY


def _look(chain: Chain) -> dict[str, Value | Missing]:
    """Look at the device's state and, where that is well, at all settings of the chain."""
    kinds = {step.setting: setting(step.setting) for step in chain.steps}
    found = read(chain.sysfs, tuple(kind.path for kind in kinds.values()))
    return {name: _typed(kind, _text(found[kind.path])) for name, kind in kinds.items()}


def _look_again(chain: Chain, kind: Setting) -> Value | Missing:
    """Look at one setting of a device that has answered: each file costs, under load a lot."""
    return _typed(kind, read_again(chain.sysfs, kind.path))


def _text(found: Attribute | Missing) -> str | Missing:
    return found if isinstance(found, Missing) else found.text


def _typed(kind: Setting, text: str | Missing) -> Value | Missing:
    if isinstance(text, Missing):
        return text
    try:
        return kind.parse(text)
    except ValueError:
        return Missing(Reason.UNPARSABLE, text=text)
