"""Find the cause of a disk's latency: trace its requests for a while, and read its limits.

Nothing is written to a device, and no I/O is started. The history stores the answer.
"""

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from statistics import fmean

from msgspec import Struct

from hbatune.act import block_trace
from hbatune.act.block_trace import BlockTrace
from hbatune.act.executor import IdleCpus
from hbatune.errors import HbatuneError, UsageError
from hbatune.facts.cgroups import find_limited_cgroup, read_io_limits
from hbatune.facts.machine import gather_machine
from hbatune.facts.model import Endpoint, Kind, Machine, Missing, Role
from hbatune.facts.names import find_cpus
from hbatune.facts.sampler import Sample, SampledPlaces, Sampler
from hbatune.facts.targets import Target, make_target, select_endpoints
from hbatune.operations.context import Context, Task
from hbatune.operations.differences import find_differences
from hbatune.operations.situation import SituationRequest
from hbatune.policy.config import load_configuration
from hbatune.probe import history
from hbatune.settings.limits import find_scheduler
from hbatune.settings.setting import QUEUE_DEPTH, Value
from hbatune.settings.table import IRQ_AFFINITY, SETTINGS, list_attributes
from hbatune.watch import causes

_SETTINGS = ("scheduler", "nr_requests", "async_depth", "wbt_lat_usec", QUEUE_DEPTH)
_FIRST_S, _LONGEST_S = 0.1, 0.8
"""The first window, and the longest. In the rest of its second, the events are read."""
_FEWEST_EVENTS = 1000
"""Events of a window without an idle CPU, and events to read without a rest."""
_IDLE_EVENTS = 4000
"""Events of a window with an idle CPU, which reads them at no cost for the load."""
_EVENTS_PER_REQUEST = 40
"""Events of a window for each request in flight. A request has four events. If it begins or ends
outside of the window, it is not counted, so a short window would hide slow requests."""
_REST_FACTOR = 39
"""Factor from the time to read a window to the rest before the next one, without an idle CPU. So
reading takes 2.5 % of a CPU."""


class TracedLatency(Struct, frozen=True, kw_only=True):
    """The p99 of a disk, and its ``cause``, or None if the load was too small.

    ``lever`` is the setting that is the cause, or ``none``. ``gain`` is the largest share (0 to 1)
    of the p99 that it can win. ``current`` is its value, and ``wanted`` the value of the active
    profile if it differs. ``culprit`` is the interrupt to move, or the cgroup, the disk or the CPU
    behind another cause. ``limited`` is a cgroup at its limit in io.max. ``traced`` is the fraction
    of ``seconds`` that was traced, without windows in which events were ``lost``.
    """

    target: str
    lever: str
    cause: causes.LatencyCause | None
    culprit: str | None
    limited: str | None
    gain: float
    current: Value | None
    wanted: Value | None
    p99_us: int | None
    stages: tuple[causes.StageTime, ...]
    requests: int
    seconds: float
    traced: float
    lost: int


def explain_latency(
    context: Context, names: Collection[str], seconds: int, advance: Callable[[str], None]
) -> TracedLatency:
    """Trace the disk with these names for the number of seconds, and find the cause.

    ``advance`` is called after each second. The caller holds the lock of traces. Raises UsageError
    unless the names mean one disk, and HbatuneError if the kernel does not allow a trace.
    """
    deadline = load_configuration().act.deadline_seconds
    machine = gather_machine(list_attributes(_SETTINGS), deadline=deadline)
    disk = choose_traced_disk(machine, names, "why")
    tracing = _Tracing(machine, disk)
    tracing.run(seconds, advance)
    requests = tracing.requests
    limits = tracing.find_limits()
    diagnosis = causes.find_cause(requests, limits)
    lever = diagnosis.cause if diagnosis.cause in SETTINGS else None
    target = make_target(disk)
    for vector in machine.vectors:
        if lever == IRQ_AFFINITY and vector.target == diagnosis.culprit:
            target = make_target(vector)
    current, wanted = (None, None) if lever is None else _find_values(target, lever)
    latency = TracedLatency(
        target=disk.target,
        lever=lever or "none",
        cause=diagnosis.cause,
        culprit=diagnosis.culprit,
        limited=limits.limited,
        gain=diagnosis.gain,
        current=current,
        wanted=wanted,
        p99_us=sum(causes.select_tail(requests)[0].stages) if requests else None,
        stages=causes.measure_stages(requests) if requests else (),
        requests=len(requests),
        seconds=tracing.seconds,
        traced=tracing.traced_seconds / tracing.seconds,
        lost=tracing.lost,
    )
    if latency.cause is not None and latency.p99_us is not None:
        figures = (latency.gain, latency.p99_us, latency.current)
        vector_id = None if target.id == disk.id else target.id
        cause = history.TracedCause(latency.cause, latency.lever, *figures, id=vector_id)
        origin = (machine.kernel, machine.boot_id, None, disk.target, disk.id)
        record = history.Record(time.time(), "why", *origin, None, traced=cause)
        context.attempt(Task.SAVE_HISTORY, partial(history.append, context.paths.history, [record]))
    return latency


def choose_traced_disk(machine: Machine, names: Collection[str], command: str) -> Endpoint:
    """Return the disk with these names, or its map if it is a path. UsageError unless it is one."""
    endpoints = machine.endpoints_by_target
    disks = {}
    for endpoint in select_endpoints(machine, names):
        disk = endpoints.get(endpoint.map or "", endpoint)
        disks[disk.target] = disk
    if len(disks) != 1:
        problem = f"{' '.join(names)} means {len(disks)} disks, and only one is traced"
        first = f"sudo hbatune {command} {next(iter(disks))}" if disks else "hbatune list --all"
        raise UsageError(problem, hint=f"name one disk; start with `{first}`")
    [disk] = disks.values()
    if disk.kind is Kind.MAP and isinstance(disk.tags, Missing):
        problem = f"{disk.target} has no requests: its I/O goes to hidden paths"
        raise UsageError(problem, hint="name a disk without paths or with multipathd")
    return disk


@contextmanager
def removed_at_end(trace: BlockTrace, target: str) -> Iterator[None]:
    """Remove a killed run's trace, and this one at the end. HbatuneError if it is not possible."""
    trace.remove()
    try:
        yield
    except OSError as error:
        problem = f"{target} cannot be traced: {error.strerror or error}"
        hint = "it needs tracefs in /sys/kernel/tracing, which a lockdown of the kernel forbids"
        raise HbatuneError(problem, hint=hint) from error
    finally:
        trace.remove()


def _find_values(target: Target, setting: str) -> tuple[Value | None, Value | None]:
    """Return a setting's current value, and the active profile's if it differs; None if unknown."""
    current = SETTINGS[setting].read(target.attributes)
    value = None if isinstance(current, Missing) else current
    try:
        compared = find_differences(SituationRequest(targets=[target.name], narrow=True))
    except HbatuneError:  # no profile is active, or its rules have an error
        return value, None
    wanted = {row.key: row.value for row in compared.plan.drift}
    return value, wanted.get((target.id, setting))


class _Tracing:
    """The trace of one disk, with samples of the machine around it. Mutable."""

    def __init__(self, machine: Machine, disk: Endpoint) -> None:
        self.requests: list[block_trace.TracedRequest] = []
        self.seconds, self.traced_seconds, self.lost = 0.0, 0.0, 0
        self._next_window, self._events, self._idle_cpus = 0.0, 0, IdleCpus()
        self._machine, self._disk = machine, disk
        self._siblings: dict[str, str] = {}
        for other in machine.endpoints:
            # The LUNs of a SCSI host, and the namespaces of an NVMe controller, share their tags.
            if other.adapter and (other.adapter, other.host) == (disk.adapter, disk.host):
                self._siblings[other.target] = other.id
        self._siblings.pop(disk.target, None)
        self._sampler = Sampler(SampledPlaces({disk.target: disk.id, **self._siblings}))
        self._samples = [self._sample()]
        if disk.id not in self._samples[0].disks:
            raise HbatuneError(f"{disk.target} was removed")
        self._device = self._samples[0].disks[disk.id].device
        self._cgroups = read_io_limits(self._device)

    def run(self, seconds: int, advance: Callable[[str], None]) -> None:
        """Trace in a window of each second, or of fewer seconds if no CPU is idle.

        Raises HbatuneError if the kernel does not allow it.
        """
        target = self._disk.target
        trace = BlockTrace("hbatune-why", block_trace.STAGE_EVENTS, self._device)
        begin, length = time.monotonic(), _FIRST_S
        with removed_at_end(trace, target):
            for second in range(1, seconds + 1):
                has_idle_cpu = self._idle_cpus.found()
                if has_idle_cpu or time.monotonic() >= self._next_window:
                    events = _IDLE_EVENTS if has_idle_cpu else _FEWEST_EVENTS
                    length = min(_LONGEST_S, self._trace_window(trace, length, events))
                advance(target)
                time.sleep(max(0.0, begin + second - time.monotonic()))
        self.seconds = time.monotonic() - begin

    def _trace_window(self, trace: BlockTrace, length: float, fewest: int) -> float:
        """Trace for ``length`` seconds, and return the seconds for at least ``fewest`` events."""
        trace.start()
        begin = time.monotonic()
        time.sleep(length)
        self._samples.append(self._sample())
        stopped = end = time.monotonic()
        most_in_flight = max(self._list_loads(self._disk.id))
        wanted = max(fewest, _EVENTS_PER_REQUEST * most_in_flight)
        wanted = min(wanted, block_trace.MAX_EVENTS)
        events = list(islice(trace.stop(), wanted))
        lost = trace.count_lost()
        if len(events) == wanted:  # later ones are not read
            end = events[-1].time_us / 1e6
        next_length = (end - begin) * wanted / max(1, len(events))
        if lost:
            self.lost += lost
            return min(length, next_length) / 4
        self._events += len(events)
        if self._events >= _FEWEST_EVENTS:  # with fewer, there may be no answer
            ended = time.monotonic()
            self._next_window = ended + _REST_FACTOR * (ended - stopped)
        self.traced_seconds += end - begin
        for request in block_trace.trace_requests(events):
            # A request with a flush waits for the flush before its issue.
            if request.got and request.sent and request.operation[0] != "F":
                self.requests.append(request)
        return next_length

    def _sample(self) -> Sample:
        return self._sampler.sample(time.monotonic(), time.time())

    def _list_loads(self, id: str) -> list[int]:
        """Return the commands in flight of a disk, in each sample that has it."""
        return [sample.disks[id].in_flight for sample in self._samples if id in sample.disks]

    def find_limits(self) -> causes.QueueLimits:
        """Return the limits of the disk, and the load of its siblings during the trace."""
        disk, scheduler = self._disk, find_scheduler(self._disk.attributes)
        group = disk.active_group
        names = group.paths if group is not None else disk.paths or (disk.target,)
        members = [endpoint for endpoint in self._machine.endpoints if endpoint.target in names]
        depths = [SETTINGS[QUEUE_DEPTH].read_number(member.attributes) for member in members]
        siblings = {}
        for name, id in self._siblings.items():
            siblings[name] = fmean(self._list_loads(id) or [0])
        adapters = {member.adapter for member in members}
        interrupts = {}
        for vector in self._machine.vectors:
            if vector.adapter in adapters and vector.role is Role.DATA and not vector.managed:
                for cpu in find_cpus(vector.effective or "") or ():
                    interrupts[cpu] = vector.target
        cgroups = read_io_limits(self._device)
        return causes.QueueLimits(
            scheduler=None if scheduler is None else str(scheduler),
            requests=SETTINGS["nr_requests"].read_number(disk.attributes),
            async_depth=SETTINGS["async_depth"].read_number(disk.attributes),
            wbt_us=SETTINGS["wbt_lat_usec"].read_number(disk.attributes),
            depth=None if None in depths else sum(filter(None, depths)),
            tags=None if isinstance(disk.tags, Missing) else disk.tags,
            siblings=siblings,
            cgroups=cgroups,
            limited=find_limited_cgroup(self._cgroups, cgroups, self.seconds),
            interrupts=interrupts,
        )
