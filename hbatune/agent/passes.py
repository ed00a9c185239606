"""One pass of the daemon: scan, permitted writes (``judge``), and report."""

import errno
import os
from contextlib import suppress
from itertools import chain

from msgspec.structs import replace

from hbatune.act.journal import JournalError
from hbatune.act.lock import Lock
from hbatune.act.paths import Paths
from hbatune.agent import orders
from hbatune.agent.child import ChildError, await_answer, start_server
from hbatune.agent.events import DeviceEvent
from hbatune.agent.judge import Judge
from hbatune.agent.orders import DelayedScan, Order, PassReason, PassReport, UnwrittenFile
from hbatune.errors import HbatuneError, LockedError
from hbatune.facts import assembly, sampler
from hbatune.operations import rollback, situation
from hbatune.operations.context import Context, Note, TaskFailed
from hbatune.operations.reconcile import MachineCache, PassRequest, PassResult, run_pass
from hbatune.plan.rows import count_settings
from hbatune.policy.config import Config
from hbatune.policy.library import installed_library
from hbatune.policy.profile import Profile
from hbatune.probe import history
from hbatune.settings.table import QUEUE_DEPTH, Cause
from hbatune.watch.readings import Subjects
from hbatune.watch.subjects import find_subjects
from hbatune.workers.worker import list_worker_pids

WRITER_WAIT_S = 0.5
"""Seconds to wait for the writers of an interrupted run."""
RECONNECT_SCAN_DELAYS_S = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 5.0)
"""Seconds between the pass for a reconnected NVMe controller and the next scans of its disks. The
kernel reports the connection before it resets their limits in a scan of the namespaces
(drivers/nvme/host/core.c: nvme_start_ctrl queues nvme_scan_work). This usually takes milliseconds,
as does a scan of the disks."""
_MAX_SKIPPED = 16
"""Maximum excluded settings that the status describes."""
CHECKS_TIMEOUT_S = 120.0
"""Seconds for the checks. They read each device with a deadline."""
INTERRUPT_CHECK_DELAY_S = 0.5
"""Seconds until its interrupts are checked, which requires a full scan."""


class Memory:
    """The state that one pass leaves for the next pass of the same process. Mutable."""

    def __init__(self) -> None:
        self.last = MachineCache(Paths.journal)
        self.levels: dict[str, orders.DepthLevel] | None = None  # before the first pass
        self.knees: dict[str, int] = {}  # from probes

    def close(self) -> None:
        """Release the resources. A process that exits need not call it."""
        self.last.close()


def run(order: Order, config: Config, profile: Profile, memory: Memory) -> bytes:
    """Make the pass and return its encoded report (``orders.decode_report``). Raises nothing.

    With the ``memory`` of earlier passes, a pass for events can scan only a part of the machine.
    The memory must belong to the same configuration and profile.
    """
    try:
        report = _make_pass(order, config, profile, memory)
    except LockedError:
        report = PassReport(profile=profile.name, locked=True)
    except (HbatuneError, OSError) as error:
        hint = error.hint if isinstance(error, HbatuneError) else None
        unwritten = _find_unwritten(error)
        report = PassReport(profile.name, error=str(error), hint=hint, unwritten=unwritten)
    return orders.encode_report(report)


def restore_all(config: Config) -> str | None:
    """Restore all values in the journal. Return the error, if any. Raises nothing."""
    errors: list[HbatuneError] = []
    try:
        rows = rollback.restore_all(_make_context(errors), config)
        if failures := sum(not row.done for row in rows):
            raise HbatuneError(f"{failures} of {len(rows)} values could not be restored")
    except (HbatuneError, OSError) as error:
        return str(error)
    return errors[-1].message if errors else None


_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


def _find_unwritten(error: Exception) -> tuple[UnwrittenFile, ...]:
    """Return the file that could not be written if that is the cause of an error."""
    cause = error if isinstance(error, OSError) else error.__cause__
    if not isinstance(cause, OSError):
        return ()
    if isinstance(error, JournalError):
        return (UnwrittenFile(str(Paths.journal), cause.strerror or str(cause)),)
    if cause.errno in _UNWRITABLE and isinstance(cause.filename, str | os.PathLike):
        return (UnwrittenFile(os.fspath(cause.filename), cause.strerror or str(cause)),)
    return ()


def _make_context(errors: list[HbatuneError]) -> Context:
    """Return a context that waits for no lock and adds the errors of failed tasks."""

    def add_error(note: Note) -> None:
        if isinstance(note, TaskFailed):
            errors.append(note.error)

    return Context(
        lock=lambda: Lock(Paths.lock, spare=Paths.lock_spare),
        note=add_error,
        patience=WRITER_WAIT_S,
        warns=False,  # reports irqbalance only on changes
    )


def _make_pass(order: Order, config: Config, profile: Profile, memory: Memory) -> PassReport:
    """Make a pass for an order, and plan further scans after a reconnection."""
    connected = _find_controller_disks(order, memory.last)
    if not connected:
        return _run_pass(order, config, profile, memory)
    # The disks come first. The interrupts require a full scan, which waits until the first of the
    # further scans of the disks are over.
    disks = tuple(DeviceEvent(name, Cause.CONNECTED) for name in chain(*connected.values()))
    other_events = tuple(event for event in order.events if event not in connected)
    report = _run_pass(replace(order, events=(*other_events, *disks)), config, profile, memory)
    controllers = tuple(replace(event, whole=True) for event in connected)
    later = [DelayedScan(seconds, disks) for seconds in RECONNECT_SCAN_DELAYS_S]
    later.append(DelayedScan(INTERRUPT_CHECK_DELAY_S, (*disks, *controllers)))
    return replace(report, later=tuple(later))


def _run_pass(order: Order, config: Config, profile: Profile, memory: Memory) -> PassReport:
    if memory.levels is not None:
        order = replace(order, levels=memory.levels)
    errors, judge, last = list[HbatuneError](), Judge(order), memory.last
    request = PassRequest(
        config=config,
        profile=profile,
        names=_choose_names(order, last),
        unmarked=order.unmarked,
        # Only a requested reload restores settings that the profile no longer requires. A rules
        # file that is missing for a moment must not cause this.
        put_back=order.reason is PassReason.RELOAD,
    )
    reconciled = run_pass(_make_context(errors), request, judge, last)
    if reconciled is None:
        # Superseded: the daemon repeats the order with its current configuration and record.
        return PassReport(profile=profile.name, locked=True)
    endpoints = reconciled.machine.endpoints
    memory.levels = judge.levels if order.names is None else {**order.levels, **judge.levels}
    findings, lost_rules = _run_checks(config, profile) if order.checks else (None, ())
    if reconciled.whole:
        memory.knees = {}
        with suppress(HbatuneError):  # if the history cannot be read
            records = history.load(Paths.history).records
            memory.knees = history.find_latest_knees(records, reconciled.machine, profile.probe)
    # A write may have proved that the kernel does not let a setting be changed.
    rows = [reconciled.done.get(row.key, row) for row in reconciled.rows]
    looked = [disk.id for disk in endpoints if judge.chosen is not None and disk.id in judge.chosen]
    return PassReport(
        profile=profile.name,
        endpoints=len(endpoints) if last.machine is None else len(last.machine),
        changes=tuple(judge.change(row, reconciled) for row in reconciled.drift.values()),
        unreadable=last.unreadable,
        counts=count_settings(rows, endpoints, reconciled.drift) if reconciled.whole else {},
        skipped=situation.list_skipped(rows, reconciled.machine)[:_MAX_SKIPPED],
        adapters=situation.list_serving_adapters(reconciled.machine) if reconciled.whole else (),
        looked=tuple(looked),
        error=errors[-1].message if errors else None,
        unwritten=tuple(chain.from_iterable(map(_find_unwritten, errors))),
        subjects=_choose_subjects(reconciled, profile, memory),
        places=sampler.find_sampled_places(reconciled.machine),
        findings=findings,
        lost_rules=lost_rules,
        whole=reconciled.whole,
        levels=judge.levels,
        resettable=judge.resettable,
        unmatched=last.unmatched,
        workers=list_worker_pids(),
    )


def _run_checks(config: Config, profile: Profile) -> tuple[dict[str, int] | None, tuple[str, ...]]:
    """Return the answer of ``check_for_daemon``, from a fork whose memory is released."""

    def answer(_: bytes) -> bytes:
        from hbatune.operations.snapshot import check_for_daemon

        return orders.encode(check_for_daemon(config, profile))

    # A failure must not lose the report of the writes.
    with suppress(ChildError):
        sent = await_answer(start_server(answer), CHECKS_TIMEOUT_S)
        return orders.decode_findings(sent) if sent else (None, ())
    return None, ()


def _choose_subjects(reconciled: PassResult, profile: Profile, memory: Memory) -> Subjects:
    depths = {}
    for row in reconciled.rows:
        if row.setting == QUEUE_DEPTH and isinstance(row.value, int):
            depths[row.id] = row.value
    return find_subjects(
        assembly.without_attributes(reconciled.machine),
        profile,
        depths=depths,
        knees=memory.knees,
        yardsticks=installed_library().yardsticks(),
    )


def _find_controller_disks(order: Order, last: MachineCache) -> dict[DeviceEvent, tuple[str, ...]]:
    """Return events of reconnected NVMe controllers with their disks, if no full scan is needed."""
    endpoints = last.machine
    if endpoints is None:
        return {}
    disks_by_event = {}
    for event in order.events:
        if event.cause is Cause.CONNECTED and not event.whole:
            disks = tuple(disk.target for disk in endpoints.of_controller(event.name))
            if disks:
                disks_by_event[event] = disks
    return disks_by_event


def _choose_names(order: Order, last: MachineCache) -> tuple[str, ...] | None:
    """Return the names of an order's disks and SCSI hosts, or None for everything.

    If an adapter gets its driver or an NVMe controller reconnects, its interrupts are new, and
    the interrupts of all adapters are placed together. A disk of such a controller has no
    interrupts.
    """
    endpoints = last.machine
    for event in order.events:
        is_disk = endpoints is not None and endpoints.get(event.name) is not None
        bound = event.cause is Cause.BOUND or (event.cause is Cause.CONNECTED and not is_disk)
        if event.whole or bound:
            return None
    return order.names
