"""Write the settings of one target in order, as a worker does. Only this module writes settings.

The worker checks the plan's assumptions again just before each write: the same device, a path of
the same map, with the value and the scheduler that the plan saw. If one no longer holds, the step
is a conflict. The plan's own function checks again whether the value is legal. A failed step
cancels the steps that depend on it. Each write is read back and counts only if the typed value is
the planned one. A rollback that was recorded during the run cancels every later write.
"""

import errno
import fcntl
import os
import signal
import time
from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress

from msgspec import Struct, msgpack
from msgspec.structs import replace

from hbatune import nvme
from hbatune.act.rollback_record import RollbackGuard
from hbatune.facts import attributes, names
from hbatune.facts.attributes import FEATURE_PREFIX, read_attributes, reread_attribute
from hbatune.facts.commands import OBSERVATION_S, CommandCounters, Hang, find_hang
from hbatune.facts.model import Attribute, Missing, Reason, TargetKind
from hbatune.loader import ErrorNumber, LongText, ShortText, close_on_exit
from hbatune.plan.joint_limits import is_lower
from hbatune.plan.rows import DONE_OUTCOMES, Outcome
from hbatune.settings import table
from hbatune.settings.limits import HOLDER_UUIDS, find_multipath_maps, find_scheduler
from hbatune.settings.setting import NO_VECTORS, Device, FixedSetting
from hbatune.settings.table import SCHEDULER_TUNABLES, Setting, Value, find_setting, is_among
from hbatune.text.limit_text import Limit, LimitReason, describe_limit

LOCKING_LUNS = 3
"""LUNs of an adapter that the kernel locks: one writes while the next two read their files. 96 LUNs
on 7.3 took longer with two and with four."""
BUSY_PAUSE_S = 0.01
"""Average seconds before the second try on EBUSY, doubled up to ``MAX_BUSY_PAUSE_S``. Newer kernels
try-lock the tag set of an adapter for nr_requests and scheduler (block/blk-sysfs.c)."""
MAX_BUSY_PAUSE_S = 0.04
RAMP_WRITES = 12
"""Maximum writes of a value that the kernel raises at the moment it is set lower. Two are enough if
a ramp pauses between two steps, by default for two minutes. Without a pause, six failed once in
500 rounds on a busy machine (test_lowered.py)."""
MAX_RAMP_STEPS = 8
"""Maximum steps of a ramp, up or down, between a plan and its write. A full queue lowers a depth by
one, and each LUN of the target that is lowered until then may raise it by one."""
SETTLING_PAUSE = 0.001
"""Seconds before a value that may be temporary is read again, doubled each time."""
_OF_DEADLINE = 0.8  # the remaining time is for the write itself and the answer
_SHORT_WAIT = 0.02
"""Part of the patience up to which a wait for the turn does not restart the deadline. The message
would prolong the turn: 96 LUNs on 7.3 took 1.13 instead of 1.07 times a serial writer's time."""
_QUEUE = "queue/"  # a write to most files of it waits for the commands in flight


class Step(Struct, frozen=True):
    """One write: the setting, the value to set, and the assumptions of the plan.

    ``expected`` is the value that the plan saw, or None if it could not see one: a tunable of a
    scheduler that is yet to be set. ``under`` is the scheduler that the value was planned for, or
    None if it does not matter or is not known. A step that only ``follows`` repairs the effect of
    another step of the chain. It is skipped if the other step had no effect. ``ramped`` is the
    number of steps that the kernel may have raised or lowered the value since the plan.
    """

    setting: str
    value: Value
    expected: Value | None
    under: Value | None = None
    follows: bool = False
    ramped: int = MAX_RAMP_STEPS


class Chain(Struct, frozen=True):
    """The steps of one target in their order; ``sysfs`` is the directory of its attributes.

    ``identity`` are files below it with their texts at the time of the plan, ``map`` the map of
    which it was a path then. ``diskseq`` is the kernel's sequence number of a disk. ``behind`` is a
    disk of the same adapter of which a write has not returned: EBUSY is then final. ``turn`` is the
    directory for ``take_turn``, or None if the kernel does not lock the adapter.
    """

    target: str
    id: str
    adapter: str | None
    map: str | None
    sysfs: str
    steps: tuple[Step, ...]
    identity: tuple[tuple[str, str], ...] = ()
    diskseq: int | None = None
    behind: str | None = None
    turn: str | None = None

    @property
    def keys(self) -> list[tuple[str, str]]:
        """The target's id and the setting of each step."""
        return [(self.id, step.setting) for step in self.steps]


class WriteResult(Struct, frozen=True):
    """The result of one step; ``found`` is the typed value read last.

    ``said`` is the reason if no errno gives it. An ``effect`` belongs to no step: it reports
    the value that the writes left in a setting which they reset.
    """

    setting: ShortText
    outcome: Outcome
    errno: ErrorNumber | None = None
    found: Value | None = None
    said: LongText | None = None
    effect: bool = False


# A worker sends a result, or None if only its deadline restarts, and whether the kernel answered
# EBUSY at first. A pickle of both takes five times as long.
encode_reply = msgpack.Encoder().encode
decode_reply = msgpack.Decoder(tuple[WriteResult | None, bool]).decode


class ChainWriter:
    """Writes chains; one instance in each worker process.

    A write that is refused with EBUSY is repeated for most of the ``deadline``, the number of
    seconds until a worker has to answer. Before each write the ``guard`` checks for a rollback.
    """

    def __init__(self, deadline: float, guard: RollbackGuard) -> None:
        self._patience = deadline * _OF_DEADLINE
        self._guard = guard

    def __call__(self, chain: Chain) -> Iterator[bytes]:
        """Execute the steps in order; yield encoded results, also if a step raises."""
        device: _Device | None = None
        answered = 0
        try:
            device = _Device(chain, self._patience, self._guard)
            for result in device.write():
                answered += result is not None
                busy, device.busy = device.busy, False
                yield encode_reply((result, busy))
        except Exception as error:
            if answered < len(chain.steps):
                result = _report_interruption(chain.steps[answered], device, error)
                yield encode_reply((result, False))
            raise


def _report_interruption(step: Step, device: "_Device | None", error: Exception) -> WriteResult:
    number, limit = error.errno if isinstance(error, OSError) else None, Limit.FAILED_BEFORE_WRITE
    facts = ("" if number else f" ({str(error) or type(error).__name__})",)
    if device is not None and device.has_written:
        number, limit = errno.ECHILD, Limit.FAILED_IN_WRITE
    said = describe_limit(LimitReason(limit, facts))
    return WriteResult(step.setting, Outcome.REFUSED, number, said=said)


def _explain(
    step: Step, outcome: Outcome, reason: LimitReason | str, found: Value | None = None
) -> WriteResult:
    """Return a result that has a reason and no errno."""
    return WriteResult(step.setting, outcome, found=found, said=describe_limit(reason))


@contextmanager
def take_turn(directory: str, seconds: float) -> Iterator[bool]:
    """Wait for the turn to write to an adapter that the kernel locks; one worker has it.

    Writes of several workers would collide, and each refused try would delay the write of another.
    The turn is a lock on the ``directory``, which the kernel releases when its worker ends. The
    block also begins, with False, after these ``seconds``, or if the directory is missing.
    """
    has_turn = False
    with ExitStack() as stack:
        stack.callback(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, _expire))
        with suppress(OSError):
            descriptor = os.open(directory, os.O_DIRECTORY | os.O_CLOEXEC)
            stack.enter_context(close_on_exit(descriptor))
            signal.setitimer(signal.ITIMER_REAL, seconds)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            has_turn = True
        signal.setitimer(signal.ITIMER_REAL, 0)
        yield has_turn


def _expire(signum: int, frame: object) -> None:
    raise TimeoutError


class _Device:
    """The target of a chain in its worker, with the text last read of each attribute."""

    def __init__(self, chain: Chain, patience: float, guard: RollbackGuard) -> None:
        self._chain = chain
        self._guard = guard
        self._patience = patience
        self.busy = False
        self.has_written = False
        self._settings: dict[str, Setting] = {}
        self._resettable: set[str] = set()
        paths: list[str] = []
        for step in chain.steps:
            kind = self._settings[step.setting] = find_setting(step.setting)
            self._resettable.update(kind.resets)
            paths += (*kind.paths, *kind.needs)
        # Also the settings that the steps may reset and that are not steps themselves.
        for name in self._resettable - self._settings.keys() - {SCHEDULER_TUNABLES}:
            if find_setting(name).kept:
                paths.append(find_setting(name).path)
        paths += dict(chain.identity)
        # Only the writes of a block device must respect limits and maps.
        self._is_block_device = TargetKind.ENDPOINT in map(table.find_target_kind, self._settings)
        if self._is_block_device:
            paths.append(HOLDER_UUIDS)
        self._found = read_attributes(chain.sysfs, tuple(dict.fromkeys(paths)))
        # A copy, since later reads overwrite ``_found``: effects are compared with it.
        self._before = dict(self._found)
        self._reset: set[str] = set()  # settings that a write of this chain may have changed
        self._conflicts: Mapping[str, Value] = {}
        self._counters = CommandCounters(chain.sysfs) if self._is_block_device else None
        self._hang: Hang | None = None
        self._began = time.monotonic()  # of the present step, with which its deadline begins

    def write(self) -> Iterator[WriteResult | None]:
        """Execute the steps in their order, and yield the result of each, or None as in `do`."""
        # Once for the chain, right before its first write: names such as `sda` are reused at
        # hotplug.
        replaced, moved = self.replaced(), self.moved()
        self._conflicts = self.conflicts()
        failed: dict[str, WriteResult] = {}
        for step in self._chain.steps:
            self._began = time.monotonic()
            causes = [
                failed[name] for name in self._settings[step.setting].hangs_on if name in failed
            ]
            if replaced:
                result = _explain(step, Outcome.VANISHED, LimitReason(Limit.DEVICE_REPLACED))
            elif step.setting in self._conflicts:
                current = self._conflicts[step.setting]
                result = WriteResult(step.setting, Outcome.CONFLICT, found=current)
            elif causes and causes[0].outcome is Outcome.BLOCKED:
                result = replace(causes[0], setting=step.setting, found=None)
            elif causes:
                reason = LimitReason(Limit.DEPENDENCY_FAILED, (causes[0].setting,))
                result = _explain(step, Outcome.CANCELLED, reason)
            elif moved:
                result = _explain(step, Outcome.CONFLICT, moved)
            else:
                result = yield from self.do(step)
            if result.outcome not in DONE_OUTCOMES:
                failed[step.setting] = result
            yield result
        # After the last step, since each of them may reset a setting again.
        yield from self.effects()

    def replaced(self) -> bool:
        """Return whether the device was replaced after the plan was made."""
        for path, text in self._chain.identity:
            attribute = self._found.get(path)
            # Only another text proves another device; a file that cannot be read proves nothing.
            if isinstance(attribute, Attribute) and attribute.text != text:
                return True
        return False

    def moved(self) -> LimitReason | None:
        """Return why the plan no longer fits if the device has joined, left or changed a map."""
        if not self._is_block_device:
            return None
        maps = find_multipath_maps(self._found)
        # Only dm maps show as holders of a path (``HOLDER_UUIDS``); an NVMe head does not.
        planned = {self._chain.map} if (self._chain.map or "").startswith("dm-") else set()
        if maps == planned:
            return None
        return LimitReason(Limit.MAP_CHANGED, (", ".join(sorted(maps)) or "no map",))

    def conflicts(self) -> dict[str, Value]:
        """Return the values that others changed since the plan and that the chain would reset."""
        conflicts = {}
        for step in self._chain.steps:
            kind = self._settings[step.setting]
            if is_among(step.setting, self._resettable):
                value = kind.read(self._found)
                if not isinstance(value, Missing) and has_changed(kind, step, value):
                    conflicts[step.setting] = value
        return conflicts

    def do(self, step: Step) -> Generator[None, None, WriteResult]:
        """Write one step if that is needed and allowed. Yield after each long wait for its turn."""
        kind = self._settings[step.setting]
        disturbed = is_among(step.setting, self._reset)
        # The first read is out of date if a write of this chain resets the setting.
        current = self._reread_value(kind) if disturbed else kind.read(self._found)
        if step.expected is not None:
            current = self._await_settled(kind, current, step.expected)
        if isinstance(current, Missing):
            hang = self._explain_hang(kind)
            return _report_unreadable(self._chain, step, current, hang)
        # Values that others have set since the plan must not be overwritten.
        if not disturbed and has_changed(kind, step, current):
            return WriteResult(step.setting, Outcome.CONFLICT, found=current)
        if step.follows and current == kind.read(self._before):
            return WriteResult(step.setting, Outcome.KEPT, found=current)
        if current == step.value:
            # Right already: either no write is needed, or an earlier write set it.
            outcome = Outcome.WRITTEN if disturbed else Outcome.KEPT
            return WriteResult(step.setting, outcome, found=current)
        for lost, value in self._conflicts.items():
            if is_among(lost, kind.resets):
                reason = LimitReason(Limit.WOULD_RESET, (lost, value))
                return _explain(step, Outcome.CONFLICT, reason, current)
        if (illegal := self._find_violation(step, current)) is not None:
            return _explain(step, Outcome.CONFLICT, illegal, current)
        if (hang := self._explain_hang(kind)) is not None:
            return _explain(step, Outcome.BLOCKED, hang, current)
        self._reset.update(kind.resets)
        return (yield from self._write(step, kind))

    def _explain_hang(self, kind: Setting) -> LimitReason | None:
        if self._counters is None or not kind.path.startswith(_QUEUE):
            return None
        # A command that hangs is not awaited twice.
        seconds = min(OBSERVATION_S, self._patience / 2)
        hang = self._hang = self._hang or find_hang(self._counters, seconds)
        if hang is None:
            return None
        if hang.state is not None:
            return LimitReason(Limit.NOT_RUNNING, (hang.state,))
        return LimitReason(Limit.COMMANDS_HANG, (hang.commands, hang.age))

    def effects(self) -> Iterator[WriteResult]:
        """Yield the values left in settings that the writes reset; restore kept ones."""
        for name in sorted(self._reset - self._settings.keys()):
            if name == SCHEDULER_TUNABLES or is_among(name, self._reset - {name}):
                continue  # the tunables were removed with their scheduler
            kind = find_setting(name)
            current, before = self._reread_value(kind), kind.read(self._before)
            # Such as read_ahead_kb: newer kernels raise it to 128 KiB when a queue limit is written
            # (block/blk-settings.c: blk_apply_bdi_limits).
            restores = kind.kept and current != before
            restores = restores and self._guard.objection(self._chain.id) is None
            if restores and not isinstance(before, Missing) and self._explain_hang(kind) is None:
                self._set(kind, before)
                current = self._reread_value(kind)
            if not isinstance(current, Missing):
                yield WriteResult(name, Outcome.KEPT, found=current, effect=True)

    def _find_violation(self, step: Step, current: Value) -> LimitReason | str | None:
        """Return why the value must not be written now, although it was planned."""
        if not self._is_block_device:
            return None
        kind = self._settings[step.setting]
        if kind.hangs_on and self._reset:
            # A write of this chain may have changed the values on which the limit depends.
            for path in kind.needs:
                self._reread(path)
        scheduler = find_scheduler(self._found)
        if step.under is not None and scheduler is not None and scheduler != step.under:
            return LimitReason(Limit.OTHER_SCHEDULER, (step.under, scheduler))
        verdict = kind.limit(step.value, current, Device(self._found, scheduler))
        if isinstance(verdict, FixedSetting):
            return verdict.limit
        return None if verdict.value == step.value else verdict.limit

    def _write(self, step: Step, kind: Setting) -> Generator[None, None, WriteResult]:
        directory = self._chain.turn if kind.locks_adapter else None
        # Each of the other LUNs may have the turn until its own deadline.
        tries = (directory,) * (LOCKING_LUNS - 1) if directory else ()
        # Read back in any case: a refused write may have changed the value, and an accepted one may
        # have been clamped, ignored or misinterpreted.
        for _ in range(RAMP_WRITES if kind.ramps else 1):
            with ExitStack() as stack:
                for directory in tries:
                    has_turn = stack.enter_context(take_turn(directory, self._patience))
                    waited = time.monotonic() - self._began
                    if waited > _SHORT_WAIT * self._patience:
                        yield
                    if has_turn:
                        self._began = time.monotonic()
                        break
                # A rollback may have been recorded while this worker waited for its turn.
                if (objection := self._guard.objection(self._chain.id)) is not None:
                    return _explain(step, Outcome.CANCELLED, objection)
                refused = self._set(kind, step.value)
            current = self._reread_value(kind)
            if refused is not None or not is_lower(step.value, current):
                break
        if refused is None:
            current = self._await_settled(kind, current, step.value)
        if isinstance(current, Missing):
            return _report_unreadable(self._chain, step, current)
        if isinstance(refused, LimitReason | str):
            return _explain(step, Outcome.REFUSED, refused, current)
        if refused == errno.EBUSY and self._chain.behind is not None:
            reason = LimitReason(Limit.SIBLING_STUCK, (self._chain.behind,))
            return _explain(step, Outcome.BLOCKED, reason, current)
        if refused is not None:
            objection = self._guard.objection(self._chain.id) if refused == errno.EBUSY else None
            if objection is not None:
                return _explain(step, Outcome.CANCELLED, objection, current)
            return WriteResult(step.setting, Outcome.REFUSED, refused, current)
        outcome = Outcome.WRITTEN if current == step.value else Outcome.IGNORED
        return WriteResult(step.setting, outcome, found=current)

    def _set(self, kind: Setting, value: Value) -> int | LimitReason | str | None:
        """Write a setting; return None, or the refusal as an errno or a text."""
        self.has_written = True
        if kind.path.startswith((FEATURE_PREFIX, attributes.FIRMWARE_FILE)):
            sysfs, text = self._chain.sysfs, kind.format.encode(value)
            try:
                if kind.path.startswith(FEATURE_PREFIX):
                    return _set_feature(sysfs, kind.path, text)
                from hbatune import mpi  # few sites open a firmware

                mpi.write_page(sysfs, attributes.get_word(self._found, kind.path), text)
            except OSError as error:
                return error.errno or str(error)
            return None
        path = f"{self._chain.sysfs}/{kind.find_path(self._found)}"
        text = kind.format.encode(value)
        pause, until, waited = BUSY_PAUSE_S, self._began + self._patience, 0.0
        while (refused := _store(path, text)) == errno.EBUSY:
            self.busy = True
            delay = add_jitter(pause)
            waited += delay
            is_late = waited > self._patience or time.monotonic() + delay > until
            if is_late or self._chain.behind is not None:
                return refused
            time.sleep(delay)
            if self._guard.objection(self._chain.id) is not None:
                return refused
            pause = min(2 * pause, MAX_BUSY_PAUSE_S)
        return refused

    def _await_settled(
        self, kind: Setting, current: Value | Missing, expected: Value
    ) -> Value | Missing:
        """Return the value, reading it again while an unexpected value may be temporary."""
        until, pause = time.monotonic() + kind.settles, SETTLING_PAUSE
        while current != expected and time.monotonic() < until:
            time.sleep(pause)
            pause *= 2
            current = self._reread_value(kind)
        return current

    def _reread_value(self, kind: Setting) -> Value | Missing:
        """Read only this setting again: each read costs, and much more so under load."""
        # A switch of the scheduler may add or remove the file of its tunable.
        for path in kind.paths:
            self._reread(path)
        return kind.read(self._found)

    def _reread(self, path: str) -> None:
        text = reread_attribute(self._chain.sysfs, path)
        self._found[path] = text if isinstance(text, Missing) else Attribute(text, True)


def _report_unreadable(
    chain: Chain, step: Step, missing: Missing, hang: LimitReason | None = None
) -> WriteResult:
    if missing.reason is Reason.VANISHED or not os.path.isdir(chain.sysfs):
        return WriteResult(step.setting, Outcome.VANISHED, missing.errno)
    if hang is not None:
        return _explain(step, Outcome.BLOCKED, hang)
    return WriteResult(step.setting, Outcome.REFUSED, missing.errno or errno.EINVAL)


def add_jitter(pause: float) -> float:
    """Return 0.5 to 1.5 times this pause, so refused workers do not retry together."""
    # ``random`` would not do, since forked workers share its state.
    return pause * (0.5 + int.from_bytes(os.urandom(2), "big") / 0xFFFF)


def _store(path: str, text: str) -> int | None:
    """Write the text in one write(2) and return None, or the errno of its refusal."""
    try:
        # Without O_CREAT: a missing attribute is ENOENT, and not EACCES for creating a file.
        with close_on_exit(os.open(path, os.O_WRONLY | os.O_CLOEXEC)) as descriptor:
            # One call, unbuffered: sysfs takes each write(2) for a complete value.
            os.write(descriptor, text.encode())
    except OSError as error:
        return error.errno
    return None


def has_changed(kind: Setting, step: Step, current: Value) -> bool:
    """Return whether an administrator or another tool has changed the value since the plan."""
    if step.expected is None or current in (step.expected, step.value):
        return False
    if kind.ramps and isinstance(current, int) and isinstance(step.expected, int):
        return abs(current - step.expected) > step.ramped
    return True


def _set_feature(sysfs: str, path: str, text: str) -> LimitReason | str | None:
    """Set an NVMe feature until the next reset; return the controller's refusal. Raises OSError."""
    # The node is found through one descriptor, so a reused name cannot lead to another device.
    with close_on_exit(os.open(sysfs, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)) as directory:
        node = attributes.find_device_node(directory)
    number = int(path.removeprefix(FEATURE_PREFIX), 16)
    if number == attributes.EXEMPT_FEATURE:
        return _exempt_vectors(node, names.parse_cpus("" if text == NO_VECTORS else text))
    answer = nvme.submit(node, nvme.SET_FEATURES, cdw10=number, cdw11=int(text))
    return answer.said if answer.status else None


def _exempt_vectors(node: str, vectors: Collection[int]) -> LimitReason | str | None:
    """Exempt exactly these vectors from coalescing, with a write for each vector that differs."""
    exempted = attributes.read_exemptions(node)
    if isinstance(exempted, nvme.Answer):
        return exempted.said
    for vector in vectors:
        if vector >= len(exempted):
            return LimitReason(Limit.NO_VECTOR, (vector,))
    for vector, exempt in enumerate(exempted):
        if exempt != (vector in vectors):
            # Interrupt Vector Configuration: the vector in bits 15:0, Coalescing Disable in bit 16.
            word = vector | (vector in vectors) << 16
            answer = nvme.submit(
                node, nvme.SET_FEATURES, cdw10=attributes.EXEMPT_FEATURE, cdw11=word
            )
            if answer.status:
                return answer.said
    return None
