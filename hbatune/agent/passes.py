"""One pass of the daemon: a look, the writes that may be made (``judge``), and its report."""

import errno
import os
from collections.abc import Collection

from msgspec.structs import replace

from hbatune.act import paths
from hbatune.act.journal import JournalError
from hbatune.act.lock import Lock
from hbatune.agent.events import DeviceEvent
from hbatune.agent.judge import Judge
from hbatune.agent.orders import (
    DelayedScan,
    DepthLevel,
    Order,
    PassReason,
    PassReport,
    UnwrittenFile,
    encode_report,
)
from hbatune.errors import HbatuneError, LockedError
from hbatune.facts.assembly import without_attributes
from hbatune.facts.model import Machine
from hbatune.facts.sampler import sampled_places
from hbatune.operations import rollback
from hbatune.operations.context import Context, Note, SilentReporter, TaskFailed
from hbatune.operations.last_look import MachineCache
from hbatune.operations.reconcile import Reconciled, reconcile
from hbatune.policy.config import Config
from hbatune.policy.library import Yardsticks, load_yardsticks
from hbatune.policy.profile import ProbeSpec, Profile
from hbatune.probe import history
from hbatune.probe.history import latest_knees
from hbatune.settings.table import QUEUE_DEPTH, Cause
from hbatune.shipped import shipped
from hbatune.watch.readings import Subjects
from hbatune.watch.subjects import subjects

PATIENCE = 0.5
"""Seconds to wait for writers that an interrupted run left."""
AFTER_CONNECT = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 5.0)
"""Seconds after the pass for an NVMe controller that is connected again, until its disks are looked
at once more. The kernel tells of the connection before it sets their limits anew, in a scan of the
namespaces (drivers/nvme/host/core.c: nvme_start_ctrl queues nvme_scan_work), which mostly takes
milliseconds, as does a look."""
INTERRUPTS_AFTER = 0.5
"""Seconds until its interrupts are looked at, and with them everything."""


class Memory:
    """What one pass keeps for the next one of the same process. Mutable.

    ``last`` is the machine, ``levels`` are those of queue depths (``Order.levels``), None before
    the first pass, and ``knees`` are those that probes have found. ``yardsticks`` are the figures
    of the documents, once they were needed.
    """

    def __init__(self) -> None:
        self.last = MachineCache(paths.JOURNAL)
        self.levels: dict[str, DepthLevel] | None = None
        self.knees: dict[str, int] = {}
        self.yardsticks: Yardsticks | None = None

    def close(self) -> None:
        """End what is kept ready; a process that ends need not."""
        self.last.close()


def run(order: Order, config: Config, profile: Profile, memory: Memory | None = None) -> bytes:
    """Make the pass and return its report, encoded (``messages.decode_report``). Nothing is raised.

    The ``memory`` of earlier passes lets one that is called for by events look at a part of the
    machine; it must be of the same configuration and profile.
    """
    kept = Memory() if memory is None else memory
    try:
        return encode_report(_pass(order, config, profile, kept))
    except LockedError:
        return encode_report(PassReport(profile=profile.name, locked=True))
    except HbatuneError as error:
        failed = PassReport(profile=profile.name, error=error.message, hint=error.hint)
        return encode_report(replace(failed, unwritten=_unwritten(error)))
    except OSError as error:
        failed = PassReport(profile=profile.name, error=str(error), unwritten=_unwritten(error))
        return encode_report(failed)
    finally:
        if memory is None:
            kept.close()


def put_back(config: Config) -> bytes:
    """Put back everything in the journal. Nothing is raised."""
    problems = _Problems()
    try:
        rows = rollback.put_back(_context(problems), config)
    except (HbatuneError, OSError) as error:
        return encode_report(PassReport(error=str(error)))
    lost = sum(not row.done for row in rows)
    problem = f"could not be put back: {lost} of {len(rows)} values" if lost else problems.last
    return encode_report(PassReport(error=problem))


class _Problems(SilentReporter):
    """A reporter that keeps the last failure: a pass has one line for it."""

    def __init__(self) -> None:
        self.last: str | None = None
        self.unwritten: tuple[UnwrittenFile, ...] = ()

    def note(self, note: Note) -> None:
        """Keep the note's error where a task has failed."""
        if isinstance(note, TaskFailed):
            self.last = note.error.message
            self.unwritten += _unwritten(note.error)


_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


def _unwritten(error: Exception) -> tuple[UnwrittenFile, ...]:
    """Return the file that could not be written if that is the cause of an error."""
    cause = error if isinstance(error, OSError) else error.__cause__
    if not isinstance(cause, OSError):
        return ()
    if isinstance(error, JournalError):
        return (UnwrittenFile(str(paths.JOURNAL), cause.strerror or str(cause)),)
    if cause.errno in _UNWRITABLE and isinstance(cause.filename, str | os.PathLike):
        return (UnwrittenFile(os.fspath(cause.filename), cause.strerror or str(cause)),)
    return ()


def _context(problems: _Problems) -> Context:
    """Return the daemon's context: it waits for no lock, and tells irqbalance of changes only."""
    return Context(
        lock=lambda: Lock(paths.LOCK, spare=paths.LOCK_SPARE),
        reporter=problems,
        patience=PATIENCE,
        warns=False,
    )


def _pass(order: Order, config: Config, profile: Profile, memory: Memory) -> PassReport:
    """Make a pass over what the order is for.

    Of an NVMe controller that is connected again its disks come first, and are looked at once more
    later. Its interrupts, which need a look at everything, wait until the first of these are over.
    """
    back = _disks_of_controllers(order, memory.last)
    if not back:
        return _pass_over(_disks(order, memory.last), order, config, profile, memory)
    disks = tuple(DeviceEvent(name, Cause.CONNECTED) for each in back.values() for name in each)
    others = tuple(event for event in order.events if event not in back)
    now = replace(order, events=(*others, *disks))
    report = _pass_over(_disks(now, memory.last), now, config, profile, memory)
    controllers = tuple(replace(event, whole=True) for event in back)
    later = [DelayedScan(seconds, disks) for seconds in AFTER_CONNECT]
    return replace(report, later=(*later, DelayedScan(INTERRUPTS_AFTER, (*disks, *controllers))))


def _pass_over(
    names: Collection[str] | None,
    order: Order,
    config: Config,
    profile: Profile,
    memory: Memory,
) -> PassReport:
    """Make a pass over the disks and SCSI hosts with these names, None for everything."""
    if memory.levels is not None:
        order = replace(order, levels=memory.levels)
    problems, judge = _Problems(), Judge(order)
    # Only a requested reload puts back settings that the profile no longer wants: a rules file that
    # is missing for a moment must not.
    put_back = order.reason is PassReason.RELOAD
    made = reconcile(
        _context(problems),
        config,
        profile,
        judge,
        memory.last,
        names=names,
        unmarked=order.unmarked,
        put_back=put_back,
    )
    if made is None:
        # Superseded: the daemon repeats the order with the configuration and record then in force.
        return PassReport(profile=profile.name, locked=True)
    chosen, new, machine = judge.chosen, judge.new, made.machine
    kept = {} if order.names is None else order.levels
    memory.levels = {**kept, **judge.levels}
    if made.whole:
        memory.knees = _knees(profile.probe)
    known = memory.last.machine
    return PassReport(
        profile=profile.name,
        endpoints=len(machine.endpoints) if known is None else len(known),
        changes=tuple(judge.change(row, made) for row in made.drift.values()),
        unreadable=memory.last.unreadable,
        looked=() if chosen is None else _endpoints(machine, chosen),
        new=() if chosen is None else _endpoints(machine, new & chosen),
        error=problems.last,
        unwritten=problems.unwritten,
        subjects=_subjects(made, profile, memory),
        places=sampled_places(machine),
        whole=made.whole,
        levels=judge.levels,
        resettable=judge.resettable,
        unmatched=memory.last.unmatched,
    )


def _subjects(made: Reconciled, profile: Profile, memory: Memory) -> Subjects:
    """Return what the daemon watches of the machine that was looked at."""
    if memory.yardsticks is None:
        memory.yardsticks = load_yardsticks(shipped("rules"))
    set_to = {row.id: row.value for row in made.rows if row.setting == QUEUE_DEPTH}
    depths = {id: value for id, value in set_to.items() if isinstance(value, int)}
    return subjects(
        without_attributes(made.machine),
        profile,
        depths=depths,
        knees=memory.knees,
        yardsticks=memory.yardsticks,
    )


def _disks_of_controllers(order: Order, last: MachineCache) -> dict[DeviceEvent, tuple[str, ...]]:
    """Return the events of NVMe controllers that are connected again, with the disks known of each.

    Those that take a look at everything in any case are left out.
    """
    known = last.machine
    if known is None:
        return {}
    events = [each for each in order.events if each.cause is Cause.CONNECTED and not each.whole]
    found = {each: tuple(disk.target for disk in known.of_controller(each.name)) for each in events}
    return {event: disks for event, disks in found.items() if disks}


def _disks(order: Order, last: MachineCache) -> tuple[str, ...] | None:
    """Return the names of the disks and SCSI hosts that the order is for, None for everything.

    Where an adapter gets its driver or an NVMe controller comes back, its interrupts are new, and
    those of all adapters are placed together. A disk of such a controller has none.
    """
    known = last.machine
    for event in order.events:
        is_disk = known is not None and known.get(event.name) is not None
        bound = event.cause is Cause.BOUND or (event.cause is Cause.CONNECTED and not is_disk)
        if event.whole or bound:
            return None
    return order.names


def _knees(spec: ProbeSpec) -> dict[str, int]:
    """Return the knees that probes have found; none from a history that cannot be read."""
    try:
        return latest_knees(history.load(paths.HISTORY).records, spec)
    except HbatuneError:
        return {}


def _endpoints(machine: Machine, ids: Collection[str]) -> tuple[str, ...]:
    return tuple(endpoint.id for endpoint in machine.endpoints if endpoint.id in ids)
