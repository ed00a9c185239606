"""The daemon's loop: waits for events, signals and the end of passes, and starts the next pass.

It wakes up for the watchdog and the audit, and otherwise only when something happens.
"""

import gc
import os
import select
import signal
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from itertools import chain
from typing import Protocol

from msgspec.structs import replace

from hbatune import children
from hbatune.act import rollback_record
from hbatune.act.paths import Paths
from hbatune.agent import work
from hbatune.agent.child import DIED, Child, ChildError, Server
from hbatune.agent.configuration import LastGoodConfiguration, Policy
from hbatune.agent.events import DeviceEvent, EventBatch
from hbatune.agent.monitor import DepthWatch, MetricsMonitor
from hbatune.agent.orders import (
    NewEndpointProbe,
    Order,
    PassReason,
    PassReport,
    SettingChange,
    UnwrittenFile,
    decode_report,
)
from hbatune.agent.probes import EndpointProbes
from hbatune.agent.schedule import PassHistory, Schedule
from hbatune.agent.service import ServiceManager
from hbatune.agent.status import Status, Times
from hbatune.errors import HbatuneError, UsageError
from hbatune.policy.config import Config
from hbatune.policy.profile import Profile
from hbatune.processes import author_lives, clock_id
from hbatune.settings.table import Cause
from hbatune.watch.watch import AlertEvent
from hbatune.workers import this_process
from hbatune.workers.worker import give_memory_back, keep_large_blocks_apart

CONFLICT = 0.5
"""Seconds to wait where another program has changed a value between plan and write."""
RETRY = 2.0
"""Seconds to wait while another hbatune is at work."""
AFTER_LOSS = 0.05
"""Seconds to wait after events were lost, for the rest of the storm that has come too fast."""
AFTER_RESET = 1.5
"""Seconds to wait after a reset of a controller, unless its driver has put depths back before."""
LATER = 30.0
"""Seconds to wait after a pass that could not be made."""
PASS_LIMIT_S = 300.0
"""Seconds after which a pass counts as stalled. The deadlines of its workers keep it far below."""
PASS_TIMEOUT_S = 900.0
"""Seconds after which a pass is given up: it may still go through thousands of slow disks."""
SHOWN_AFTER_S = 2.0
"""Seconds after which the status shows the pass in progress. Most passes end within milliseconds,
and two more writes would cost as much as they do."""
SAVE_EVERY_S = 30.0
"""Seconds between two saves of the status: half of the watchdog's time, when it is fed."""
SAVE_LIMIT_S = 180.0
"""Seconds after which a status is overdue: more than one interval and the end of the daemon take
(``STOP_TIMEOUT_S``, ``PUTTING_BACK``)."""
MOST_ABANDONED = 3
"""Processes that hang in the kernel, at which no other pass is started."""
PASS_PROCESS_MAX_AGE_S = 3600.0
"""Seconds for which one process makes the audits."""
STOP_TIMEOUT_S = 20.0
"""Seconds for a pass under way to end when the daemon is stopped."""
PUTTING_BACK = 120.0
"""Seconds for putting everything back then; the unit's TimeoutStopSec is above both together."""

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class HangingPassesError(HbatuneError):
    """Too many processes hang in the kernel to start another pass."""

    def __init__(self, count: int) -> None:
        super().__init__(
            f"{count} processes hang in the kernel, so no further pass is started",
            hint="`ps -eo pid,stat,wchan,args | grep hbatune` shows them in state D; repair the "
            "disk or file system that they wait for",
        )


class EventSource(Protocol):
    """A source of events: a ``UdevMonitor``."""

    def fileno(self) -> int:
        """Return the descriptor to wait for."""

    def take(self) -> EventBatch:
        """Take all events that wait."""


class Reporter(Protocol):
    """Reports the daemon's actions: in systemd's journal, by way of ``cli``."""

    def began(self, profile: str | None) -> None:
        """The daemon is ready."""

    def passed(self, reason: PassReason, report: PassReport) -> None:
        """A pass has ended."""

    def left(self, changes: Collection[SettingChange]) -> None:
        """Other programs keep setting these back, so that they are left alone from now on."""

    def overrun(self) -> None:
        """Events were lost, so that everything is looked at."""

    def reloaded(self, profile: str | None, mistake: UsageError | None) -> None:
        """Another configuration is in force, or the old one stays because of this mistake."""

    def probed(self, found: NewEndpointProbe) -> None:
        """New endpoints were measured."""

    def alerted(self, event: AlertEvent) -> None:
        """An alert was raised or cleared."""

    def unpublished(self, problem: str) -> None:
        """There are no metrics although they are configured."""

    def restored(self, problem: str | None) -> None:
        """Everything was put back at the end, or could not be for this problem."""

    def ended(self) -> None:
        """The daemon stops."""


class DaemonLoop:
    """The daemon: its state between two events, and its response to the next one.

    ``open`` are the settings that an earlier daemon of this boot has left open.
    """

    def __init__(
        self,
        source: EventSource,
        configuration: LastGoodConfiguration,
        service: ServiceManager,
        reporter: Reporter,
        save: Callable[[Status], None],
        monitor: MetricsMonitor,
        *,
        open: Iterable[SettingChange] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source, self._configuration = source, configuration
        self._service, self._reporter, self._save = service, reporter, save
        self._monitor = monitor
        self._paths = Paths()
        self._depths = DepthWatch()
        self._clock = clock
        self._status = Status(this_process(), time.time(), None)
        self._clock_id = clock_id()
        self._started = self._saved = clock()
        self._pass_ended: float | None = None
        self._pass_due = self._started + PASS_LIMIT_S
        self._unwritten: dict[str, tuple[UnwrittenFile, ...]] = {}
        self._schedule = Schedule(clock())
        audit = configuration.policy.config.daemon.audit_seconds
        self._history = PassHistory(audit, open, now=clock(), epoch=time.time())
        self._problem: str | None = None
        self._alive = clock()
        self._server: tuple[Server, Policy, float] | None = None
        self._under_way: tuple[Server, Order, float] | None = None
        self._probes = EndpointProbes()
        self._ready = False
        self._asked: list[int] = []

    def run(self) -> None:
        """Keep the profile in force until SIGTERM or SIGINT."""
        # The tables of thousands of disks are made anew with each sample of the watch.
        keep_large_blocks_apart()
        wake, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        # The handler only notes the signal: the loop acts on it where its state is consistent.
        before = {number: signal.signal(number, self._ask) for number in _SIGNALS}
        # A pipe rather than EINTR: a signal that comes just before the poll is not missed (PEP
        # 475).
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        self._save_status()
        try:
            while not self._to_stop():
                self._start()
                self._measure()
                self._wait(wake)
            self._stop()
        finally:
            signal.set_wakeup_fd(-1)
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(wake)
            os.close(woken)

    def _ask(self, number: int, frame: object) -> None:
        self._asked.append(number)

    def _to_stop(self) -> bool:
        return signal.SIGTERM in self._asked or signal.SIGINT in self._asked

    # -- passes and probes to start -----------------------------------------------------------

    def _start(self) -> None:
        """Start the pass that is due, unless one is under way."""
        now = self._clock()
        if self._under_way is not None or not self._schedule.is_due(now):
            return
        self._refresh()
        config, profile = self._configuration.policy.config, self._configuration.policy.profile
        reason, events = self._schedule.take()
        # Read at each pass: a rollback is obeyed whatever the configuration says.
        records = rollback_record.load(self._paths)
        # If records cannot be read, the pass says so.
        if profile is None or (records.covers_all and not records.damaged):
            self._idle()
            return
        order = self._history.order(reason, events, now)
        try:
            server = self._order_pass(order, config, profile)
        except (ChildError, HangingPassesError) as error:
            self._take(order, PassReport(error=error.message, hint=error.hint))
            return
        self._under_way = server, order, self._clock()

    def _order_pass(self, order: Order, config: Config, profile: Profile) -> Server:
        """Have a pass made: of a part by the process that knows the rest, else by a new one.

        An audit is made by the same, too, since a new one has to load its modules: for as long as
        it is young, so that none grows old.
        """
        policy, now = self._configuration.policy, self._clock()
        if self._server is not None:
            server, of, since = self._server
            audit = order.reason is PassReason.AUDIT and now - since < PASS_PROCESS_MAX_AGE_S
            if of is policy and (audit or order.names is not None):
                # It remembers the levels, which are many, until it looks at everything again.
                asked = order if audit else replace(order, levels={})
                with suppress(BrokenPipeError):
                    server.ask(work.encode_order(asked))
                    return server
        self._retire()
        if (hanging := children.abandoned()) >= MOST_ABANDONED:
            raise HangingPassesError(hanging)
        # Collections in the new process would otherwise make copies of all that both share.
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        passes = work.PassMaker(config, profile)
        server = Server(passes.make, rest=passes.rest)
        self._server = server, policy, now
        try:
            server.ask(work.encode_order(order))
        except BrokenPipeError as error:
            self._retire()
            raise ChildError(error) from error
        return server

    def _retire(self) -> None:
        """End the process that makes passes."""
        if self._server is not None:
            self._server[0].kill()
            self._server = None

    def _measure(self) -> None:
        """Probe new endpoints, while no pass waits and the hour's budget lasts."""
        busy = self._under_way is not None or self._schedule.has_events
        policy = self._configuration.policy
        if not busy and self._probes.is_due and policy.profile is not None:
            failed = self._probes.start(
                policy.config, policy.profile, self._clock(), PASS_TIMEOUT_S
            )
            if failed is not None:
                self._reporter.probed(failed)

    def _refresh(self, *, force: bool = False) -> None:
        """Read the configuration, and take it if it has no mistake."""
        mistake = self._configuration.mistake
        changed = self._configuration.refresh(force=force)
        if changed:
            self._reset_history()
            self._schedule.add_everything(PassReason.CONFIGURED, self._clock())
        if changed or self._configuration.mistake is not mistake:
            profile = self._configuration.policy.profile
            name = None if profile is None else profile.name
            self._reporter.reloaded(name, self._configuration.mistake)

    def _idle(self) -> None:
        """Set nothing: no profile is active, or everything was rolled back."""
        self._put_off_audit()
        self._put_off_pass_due()
        self._retire()
        self._monitor.stop_watching()
        self._depths.stop()
        quiet = replace(self._status, profile=None, open=(), error=None, alerts=())
        self._publish_status(
            replace(quiet, rolled_back=rollback_record.load(self._paths).everything)
        )

    # -- waiting for events ------------------------------------------------------------------

    def _wait(self, wake: int) -> None:
        """Wait for the next event, signal, result or deadline, and handle it."""
        # Built at each turn: children and the metrics' socket come and go.
        poll = select.poll()
        poll.register(wake, select.POLLIN)
        poll.register(self._source.fileno(), select.POLLIN)
        if self._under_way is not None:
            # POLLHUP, since a child that dies only closes its end.
            poll.register(self._under_way[0].fileno(), select.POLLIN | select.POLLHUP)
        probing = self._probes.fileno()
        if probing is not None:
            poll.register(probing, select.POLLIN | select.POLLHUP)
        asked = self._monitor.fileno()
        if asked is not None:
            poll.register(asked, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(self._timeout_ms())}
        self._feed_watchdog()
        if wake in ready:
            # Emptied before the signals are looked at, so that none is left without a wake-up.
            os.read(wake, 512)
            self._reload()
        if self._source.fileno() in ready:
            self._listen()
        if asked in ready:
            self._monitor.serve()
        if self._clock() >= self._monitor.due:
            self._watch()
        if self._under_way is None and self._clock() >= self._depths.due:
            self._look_at_depths()
        if self._under_way is not None:
            self._look_after(*self._under_way, ready)
        probed = self._probes.receive(self._clock(), ready=probing in ready)
        if probed is not None:
            self._unwritten["probe"] = probed.unwritten
            self._reporter.probed(probed)
        if self._clock() >= self._save_due:
            self._save_status()

    def _timeout_ms(self) -> float:
        """Return the milliseconds to wait if nothing happens."""
        now = self._clock()
        times = [
            self._schedule.due if self._under_way is None else self._under_way[2] + PASS_TIMEOUT_S
        ]
        times += [self._probes.limit, self._monitor.due, self._save_due]
        if self._under_way is None:
            times.append(self._depths.due)
        if self._service.watchdog is not None:
            # Twice in the watchdog's time, as sd_watchdog_enabled(3) recommends.
            times.append(self._alive + self._service.watchdog / 2)
        return max(0.0, min(times) - now) * 1000

    def _feed_watchdog(self) -> None:
        """Notify systemd's watchdog once half of its time has passed."""
        if self._service.watchdog is not None:
            now = self._clock()
            # The tolerance is that of the poll, which counts in milliseconds.
            if now - self._alive >= self._service.watchdog / 2 - 0.001:
                self._service.notify("WATCHDOG=1")
                self._alive = now

    def _watch(self) -> None:
        """Take a sample, and report alerts that were raised or cleared."""
        state, events = self._monitor.tick(self._status)
        if self._monitor.problem != self._problem:
            self._problem = self._monitor.problem
            if self._problem is not None:
                self._reporter.unpublished(self._problem)
            self._save_status()
        for event in events:
            self._reporter.alerted(event)
        if events:
            self._publish_status(replace(self._status, alerts=state.alerts))

    def _look_at_depths(self) -> None:
        """Have a pass set those that the driver has put back. Not during one, which may do so."""
        now = self._clock()
        found = self._depths.look(now)
        if found:
            self._schedule.add_events(map(DeviceEvent, found), now)

    def _reload(self) -> None:
        if signal.SIGHUP not in self._asked:
            return
        self._asked = [number for number in self._asked if number != signal.SIGHUP]
        # sd_notify(3) wants the time here: systemd tells this reload from an earlier one by it.
        self._service.notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
        self._reset_history()
        self._schedule.add_everything(PassReason.RELOAD, self._clock())
        self._refresh(force=True)
        if self._ready:
            self._service.notify("READY=1")

    def _reset_history(self) -> None:
        audit = self._configuration.policy.config.daemon.audit_seconds
        self._history.reset(audit, self._under_way[1] if self._under_way else None)

    def _listen(self) -> None:
        batch = self._source.take()
        if batch.overrun:
            self._status = replace(self._status, overruns=self._status.overruns + 1)
            self._reporter.overrun()
            # The kernel does not say which events were lost.
            self._schedule.add_everything(PassReason.OVERRUN, self._clock() + AFTER_LOSS)
        now = self._clock()
        resets = [event for event in batch.events if event.cause is Cause.RESET]
        others = [event for event in batch.events if event.cause is not Cause.RESET]
        if others:
            self._schedule.add_events(others, now)
        if resets:
            # A look at depths sees sooner when the driver has put them back, and a pass that comes
            # before that would only be in the way.
            self._schedule.add_events(resets, now, AFTER_RESET)
            self._depths.hurry(now)

    # -- results of child processes ------------------------------------------------------------

    def _look_after(self, server: Server, order: Order, started: float, ready: set[int]) -> None:
        """Receive the report of a pass; kill the pass where it takes too long."""
        if server.fileno() in ready:
            sent = server.read()
            if sent is None:
                return
            self._under_way = None
            if not sent:
                self._server = None
            known = self._monitor.disks if order.names is None else ()
            # No name for the report: as soon as it is dealt with, its memory is free.
            self._take(order, decode_report(sent, known) if sent else PassReport(error=DIED))
            if order.names is not None:
                return
            del sent
            give_memory_back()  # a report on everything has taken much
        elif self._clock() >= started + PASS_TIMEOUT_S:
            self._retire()
            self._under_way = None
            self._take(order, PassReport(error=_OVERDUE))

    def _take(self, order: Order, report: PassReport) -> None:
        """Act on the report of a pass."""
        now = self._clock()
        if report.locked:
            self._schedule.repeat(order, now + RETRY)
            if not self._ready:
                # A daemon that waits for another hbatune's lock at its start must not fail for it.
                self._service.notify(f"EXTEND_TIMEOUT_USEC={int(4 * RETRY * 1_000_000)}")
            return
        self._unwritten["pass"] = report.unwritten
        # The pass saw nothing, so it is repeated as a whole.
        if report.subjects is None and report.error is not None:
            self._schedule.repeat(order, now + LATER)
        else:
            self._pass_ended = now
            self._put_off_pass_due()
            if order.names is None:
                self._put_off_audit()
                self._unwritten.pop("probe", None)  # a lost result is shown until here
        again, report = self._history.retry_conflicts(order, report)
        if again is not None:
            self._schedule.repeat(again, now + CONFLICT)
        left, report = self._history.record(order, report, now, time.time())
        if left:
            self._reporter.left(left)
        self._reporter.passed(order.reason, replace(report, changes=self._status.news(report)))
        for look in report.later:
            self._schedule.add_later(look.events, now + look.seconds)
        # Only hotplugged endpoints: at the start of the daemon every endpoint would be new.
        if order.reason is PassReason.EVENT:
            self._probes.add(report.new)
        policy = self._configuration.policy
        if policy.profile is not None:
            self._monitor.watch(report, policy.config)
            self._depths.watch(report, now)
        self._publish_status(self._status.after(order, report, time.time()))

    def _put_off_audit(self) -> None:
        seconds = self._configuration.policy.config.daemon.audit_seconds
        self._schedule.set_audit(self._clock() + seconds)

    def _put_off_pass_due(self) -> None:
        seconds = self._configuration.policy.config.daemon.audit_seconds
        self._pass_due = self._clock() + seconds + PASS_LIMIT_S

    @property
    def _save_due(self) -> float:
        """The time of the next save of the status, if nothing happens until then."""
        due = self._saved + SAVE_EVERY_S
        if self._under_way is not None:
            shown = self._under_way[2] + SHOWN_AFTER_S
            if self._saved < shown:
                return min(due, shown)
        return due

    def _save_status(self) -> None:
        """Save the status with the times that show its readers whether the daemon works."""
        self._saved = self._clock()
        started = None if self._under_way is None else self._under_way[2]
        times = Times(
            clock=self._clock_id,
            started=self._started,
            saved=self._saved,
            save_due=self._saved + SAVE_LIMIT_S,
            # Not later for a pass in progress: one after another may be refused the lock.
            pass_due=self._pass_due
            if started is None
            else min(self._pass_due, started + PASS_LIMIT_S),
            pass_started=started,
            pass_ended=self._pass_ended,
        )
        files = chain(*self._unwritten.values(), self._monitor.unwritten)
        self._status = replace(
            self._status, times=times, unwritten=tuple(files), abandoned=children.abandoned()
        )
        self._save(self._status)

    def _publish_status(self, found: Status) -> None:
        """Save the status; the first time, tell systemd that the daemon is ready."""
        mistake = self._configuration.mistake
        message = None if mistake is None else mistake.message
        self._status = replace(found, mistake=message, ready=True)
        self._save_status()
        if not self._ready:
            self._ready = True
            self._service.notify("READY=1")
            self._reporter.began(self._status.profile)

    def _stop(self) -> None:
        """Let a pass under way end, and put everything back if that is configured.

        A daemon of which a package has a newer version is started again, and puts nothing back.
        """
        self._service.notify("STOPPING=1")
        self._monitor.close()
        self._probes.stop()
        pending = None if self._under_way is None else self._under_way[0]
        if pending is not None and not _finish(
            pending, self._clock() + STOP_TIMEOUT_S, self._clock
        ):
            self._server = None  # killed
        self._retire()
        config = self._configuration.policy.config.daemon
        if config.rollback_on_stop and not author_lives(self._paths.replacing):
            self._reporter.restored(self._put_back().error)
        self._reporter.ended()

    def _put_back(self) -> PassReport:
        config = self._configuration.policy.config
        try:
            child = Child(lambda: work.put_back(config))
        except ChildError:
            # Its workers have deadlines, so it needs no separate process.
            return decode_report(work.put_back(config))
        sent = _finish(child, self._clock() + PUTTING_BACK, self._clock)
        return decode_report(sent) if sent else PassReport(error=_OVERDUE)


_OVERDUE = "it did not come to its end"


def _finish(child: Child | Server, limit: float, clock: Callable[[], float]) -> bytes | None:
    """Wait for the result of a child and return it; kill the child at the limit."""
    while (left := limit - clock()) > 0:
        if select.select([child], [], [], left)[0] and (sent := child.read()) is not None:
            return sent
    child.kill()
    return None
