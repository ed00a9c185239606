"""The daemon's loop: wait for events, signals and the end of passes, and start the next pass."""

import gc
import os
import select
import signal
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Protocol

from msgspec.structs import replace

from hbatune import children
from hbatune.act import rollback_record
from hbatune.act.paths import Paths
from hbatune.agent import orders, work
from hbatune.agent.child import ChildError, ChildFailure, Server, await_answer, start_server
from hbatune.agent.configuration import LastGoodConfiguration, Policy
from hbatune.agent.events import DeviceEvent, UdevMonitor
from hbatune.agent.monitor import DepthWatch, MetricsMonitor
from hbatune.agent.orders import Order, PassReason, PassReport, SettingChange, UnwrittenFile
from hbatune.agent.schedule import PassHistory, Schedule
from hbatune.agent.service import ServiceManager
from hbatune.agent.status import Status, Times
from hbatune.agent.writers import WriterWatch
from hbatune.errors import HbatuneError, UsageError
from hbatune.facts.sampler import read_reset_counts
from hbatune.policy.profile import Profile
from hbatune.processes import has_living_author, read_clock_id
from hbatune.settings.table import Cause
from hbatune.watch.watch import AlertEvent
from hbatune.workers import find_this_process, worker

CONFLICT_DELAY_S = 0.5
"""Seconds to wait if another program has changed a value between plan and write."""
LOCK_RETRY_S = 2.0
"""Seconds to wait while another hbatune process holds the lock."""
EVENT_LOSS_DELAY_S = 0.05
"""Seconds to wait after events were lost, until the burst of events is over."""
RESET_DELAY_S = 1.5
"""Seconds to wait after a controller reset, unless its driver resets depths earlier."""
FAILED_PASS_DELAY_S = 30.0
"""Seconds to wait after a pass that failed."""
PASS_LIMIT_S = 300.0
"""Seconds after which a pass counts as stalled. The deadlines of its workers keep it far below."""
PASS_TIMEOUT_S = 900.0
"""Seconds after which a pass is killed: it may have to process thousands of slow disks."""
CHECK_INTERVAL_S = 600.0
"""Seconds between two runs of the checks: the drivers ask the cards for some error counters."""
SHOWN_AFTER_S = 2.0
"""Seconds after which the status shows the pass in progress. Most passes end within milliseconds,
and two more writes would cost as much as they do."""
SAVE_EVERY_S = 30.0
"""Seconds between two saves of the status: half of the watchdog's time, when it is fed."""
SAVE_LIMIT_S = 180.0
"""Seconds after which a status is overdue: more than one interval and the end of the daemon take
(``STOP_TIMEOUT_S``, ``RESTORE_ALL_TIMEOUT_S``)."""
MAX_ABANDONED = 3
"""The number of processes hanging in the kernel at which no further pass is started."""
PASS_PROCESS_MAX_AGE_S = 3600.0
"""Seconds for which one process makes the audits."""
STOP_TIMEOUT_S = 20.0
"""Seconds for the current pass to end when the daemon stops."""
RESTORE_ALL_TIMEOUT_S = 120.0
"""Seconds for restoring all values then. The unit's TimeoutStopSec exceeds the sum of both."""

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Reporter(Protocol):
    """Reports the daemon's actions, in systemd's journal."""

    def began(self, profile: str | None, doubts: Collection[str]) -> None:
        """Report that the daemon is ready, and the rules in doubt."""

    def passed(self, reason: PassReason, report: PassReport) -> None:
        """Report the end of a pass."""

    def left(self, changes: Collection[SettingChange]) -> None:
        """Report settings that are skipped from now on: other programs keep changing them."""

    def overrun(self) -> None:
        """Report that events were lost and everything is scanned."""

    def reloaded(self, profile: str | None, mistake: UsageError | None) -> None:
        """Report the new configuration, or the error because of which the old one stays."""

    def alerted(self, event: AlertEvent) -> None:
        """Report an alert that was raised or cleared."""

    def failed(self, problem: str) -> None:
        """Report why the configured metrics are not published."""

    def unnamed(self, problem: str) -> None:
        """Report why the writers of settings are not named."""

    def restored(self, problem: str | None) -> None:
        """Report that all values were restored at the end, or the problem that prevented it."""

    def ended(self) -> None:
        """Report that the daemon stops."""


class DaemonLoop:
    """The daemon. ``open`` are the settings that an earlier daemon of this boot has left open."""

    def __init__(
        self,
        source: UdevMonitor,
        configuration: LastGoodConfiguration,
        service: ServiceManager,
        reporter: Reporter,
        save: Callable[[Status], None],
        monitor: MetricsMonitor,
        writers: WriterWatch,
        *,
        open: Iterable[SettingChange] = (),
    ) -> None:
        self._source, self._configuration = source, configuration
        self._service, self._reporter, self._save = service, reporter, save
        self._monitor, self._writers = monitor, writers
        self._paths = Paths()
        self._depths, self._resets = DepthWatch(), read_reset_counts()
        self._status = Status(find_this_process(), time.time(), None, alerts=monitor.standing)
        self._clock_id = read_clock_id()
        self._started = self._saved = time.monotonic()
        self._pass_ended: float | None = None
        self._pass_due = self._started + PASS_LIMIT_S
        self._unwritten: tuple[UnwrittenFile, ...] = ()
        self._schedule = Schedule(time.monotonic())
        audit = configuration.policy.config.daemon.audit_seconds
        self._history = PassHistory(audit, open, current_time=time.monotonic(), epoch=time.time())
        self._problem: str | None = None
        self._alive = time.monotonic()
        self._server: tuple[Server, Policy, float] | None = None
        self._running: tuple[Server, Order, float] | None = None
        self._signals: list[int] = []

    def run(self) -> None:
        """Maintain the profile until SIGTERM or SIGINT."""
        # Each sample of the watch builds new tables of thousands of disks.
        worker.separate_large_blocks()
        wake, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        # The handler only notes the signal: the loop acts on it where its state is consistent.
        before = {number: signal.signal(number, self._note_signal) for number in _SIGNALS}
        # A pipe instead of EINTR, so a signal just before the poll is not missed (PEP 475).
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        self._save_status()
        try:
            while not {signal.SIGTERM, signal.SIGINT} & set(self._signals):
                self._start_pass()
                self._wait_for_event(wake)
            self._shut_down()
        finally:
            signal.set_wakeup_fd(-1)
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(wake)
            os.close(woken)

    def _note_signal(self, number: int, frame: object) -> None:
        self._signals.append(number)

    # -- passes to start -----------------------------------------------------------------------

    def _start_pass(self) -> None:
        current_time = time.monotonic()
        if self._running is not None or not self._schedule.is_due(current_time):
            return
        self._add_resets(current_time)
        self._refresh_configuration()
        profile = self._configuration.policy.profile
        reason, events = self._schedule.take()
        # Read at each pass: a rollback overrides the configuration.
        records = rollback_record.load(self._paths)
        # If records cannot be read, the pass reports it.
        if profile is None or (records.covers_all and not records.damaged):
            self._stop_tuning(rolled_back=records.everything)
            return
        if problem := self._writers.start():
            self._reporter.unnamed(problem)
        order = self._history.order(reason, events, current_time)
        age = time.time() - (self._status.checked or 0)
        are_checks_due = reason is PassReason.AUDIT and not 0 <= age < CHECK_INTERVAL_S
        order = replace(order, checks=are_checks_due)
        try:
            server = self._order_pass(order, profile)
        except HbatuneError as error:
            self._handle_report(order, PassReport(error=error.message, hint=error.hint))
            return
        self._running = server, order, time.monotonic()

    def _order_pass(self, order: Order, profile: Profile) -> Server:
        """Order a pass and return the process that makes it.

        A partial pass uses the existing process, which knows the other devices. A full pass uses a
        new process. An audit uses the existing process up to a maximum age, since a new process
        must load its modules. Raises HbatuneError if no process can be started.
        """
        policy, current_time = self._configuration.policy, time.monotonic()
        if self._server is not None:
            server, server_policy, started = self._server
            is_young = current_time - started < PASS_PROCESS_MAX_AGE_S
            audit = is_young and order.reason is PassReason.AUDIT
            if server_policy is policy and (audit or order.names is not None):
                # The process keeps the levels, which are many, until its next full scan.
                request = order if audit else replace(order, levels={})
                with suppress(BrokenPipeError):
                    server.ask(orders.encode(request))
                    return server
        self._end_server()
        if (hanging := children.collect_abandoned()) >= MAX_ABANDONED:
            raise HbatuneError(
                f"{hanging} processes hang in the kernel, so no further pass is started",
                hint="`ps -eo pid,stat,wchan,args | grep hbatune` shows them in state D; repair "
                "the disk or file system that they wait for",
            )
        # Otherwise, collections in the new process would copy all shared memory.
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        passes = work.PassMaker(policy.config, profile)
        server = start_server(passes.make, orders.encode(order), on_idle=passes.rest)
        self._server = server, policy, current_time
        return server

    def _end_server(self) -> None:
        if self._server is not None:
            self._server[0].kill()
            self._server = None

    def _refresh_configuration(self, *, force: bool = False) -> None:
        mistake = self._configuration.mistake
        changed = self._configuration.refresh(force=force)
        if changed:
            self._reset_history()
            self._schedule.add_everything(PassReason.CONFIGURED, time.monotonic())
        if changed or self._configuration.mistake is not mistake:
            profile = self._configuration.policy.profile
            name = None if profile is None else profile.name
            self._reporter.reloaded(name, self._configuration.mistake)

    def _stop_tuning(self, *, rolled_back: bool) -> None:
        """Stop tuning: no profile is active, or everything was rolled back."""
        self._postpone_audit()
        self._end_server()
        self._monitor.stop_watching()
        self._depths.stop()
        self._writers.stop()
        last_profile = self._status.profile or self._status.last_profile
        quiet = replace(self._status, profile=None, open=(), error=None, alerts=(), counts={})
        self._publish_status(replace(quiet, last_profile=last_profile, rolled_back=rolled_back))

    # -- waiting for events ------------------------------------------------------------------

    def _wait_for_event(self, wake: int) -> None:
        server = None if self._running is None else self._running[0].fileno()
        # Built each time: children come and go.
        poll = select.poll()
        writers = self._writers.fileno()
        for descriptor in (wake, self._source.fileno(), server, writers):
            if descriptor is not None:
                # A child that dies only closes its end, which poll(2) always reports.
                poll.register(descriptor, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(self._compute_timeout_ms())}
        if writers in ready:  # first, since a writer may end any moment
            self._writers.take()
        self._feed_watchdog()
        if wake in ready:
            # Emptied before the signals are read, so each signal causes a wake-up.
            os.read(wake, 512)
            self._handle_reload()
        if self._source.fileno() in ready:
            self._receive_events()
        if time.monotonic() >= self._monitor.due:
            self._take_sample()
        self._monitor.latencies.advance(time.monotonic())
        if self._running is not None:
            self._receive_report(*self._running, ready)
        elif time.monotonic() >= self._depths.due:  # depths that the driver has reset
            current_time = time.monotonic()
            if disks := self._depths.look(current_time):
                self._schedule.add_events(map(DeviceEvent, disks), current_time)
        if time.monotonic() >= self._save_due:
            self._save_status()

    def _compute_timeout_ms(self) -> float:
        times = [self._save_due, self._monitor.due, self._monitor.latencies.due]
        # Twice in the watchdog's time, as sd_watchdog_enabled(3) recommends.
        times.append(self._alive + self._service.watchdog / 2)
        if self._running is None:
            times += [self._schedule.due, self._depths.due]
        else:
            times.append(self._running[2] + PASS_TIMEOUT_S)
        return max(0.0, min(times) - time.monotonic()) * 1000

    def _feed_watchdog(self) -> None:
        current_time = time.monotonic()
        # Tolerance for the poll, which counts in milliseconds.
        if current_time - self._alive >= self._service.watchdog / 2 - 0.001:
            self._service.notify("WATCHDOG=1")
            self._alive = current_time

    def _add_resets(self, current_time: float) -> None:
        """Scan the NVMe controllers that were reset, since the event of a reset may be lost."""
        before, self._resets = self._resets, read_reset_counts()
        for name, count in self._resets.items():
            # A counter that fell starts again: root has set it to 0, or the controller is new.
            if count > before.get(name, count):
                self._schedule.add_events([DeviceEvent(name, Cause.CONNECTED)], current_time)

    def _take_sample(self) -> None:
        self._add_resets(time.monotonic())
        state, events = self._monitor.tick(self._status)
        if self._monitor.problem != self._problem:
            self._problem = self._monitor.problem
            if self._problem is not None:
                self._reporter.failed(self._problem)
            self._save_status()
        for event in events:
            self._reporter.alerted(event)
        if events:
            self._publish_status(replace(self._status, alerts=state.alerts))

    def _handle_reload(self) -> None:
        if signal.SIGHUP not in self._signals:
            return
        self._signals = [number for number in self._signals if number != signal.SIGHUP]
        # sd_notify(3) requires the time: systemd uses it to distinguish reloads.
        self._service.notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
        self._reset_history()
        self._schedule.add_everything(PassReason.RELOAD, time.monotonic())
        self._refresh_configuration(force=True)
        if self._status.ready:
            self._service.notify("READY=1")

    def _reset_history(self) -> None:
        audit = self._configuration.policy.config.daemon.audit_seconds
        self._history.reset(audit, self._running[1] if self._running else None)

    def _receive_events(self) -> None:
        events, is_overrun = self._source.take()
        if is_overrun:
            self._status = replace(self._status, overruns=self._status.overruns + 1)
            self._reporter.overrun()
            # The kernel does not report which events were lost.
            self._schedule.add_everything(PassReason.OVERRUN, time.monotonic() + EVENT_LOSS_DELAY_S)
        current_time = time.monotonic()
        for event in events:
            is_reset = event.cause is Cause.RESET
            # The depth watch notices earlier when the driver has reset the depths. A pass before
            # that would be useless.
            self._schedule.add_events([event], current_time, RESET_DELAY_S if is_reset else 0.0)
            if is_reset:
                self._depths.hurry(current_time)

    # -- results of child processes ------------------------------------------------------------

    def _receive_report(
        self, server: Server, order: Order, started: float, ready: set[int]
    ) -> None:
        """Receive the report of a pass, and kill a pass that takes too long."""
        if server.fileno() in ready:
            sent = server.read()
            if sent is None:
                return
            self._running = None
            if not sent:
                self._server = None
                self._handle_report(order, PassReport(error=ChildFailure.DIED))
                return
            disks = self._monitor.disks if order.names is None else ()
            # The report has no name here, so its memory is freed as soon as possible.
            self._handle_report(order, orders.decode_report(sent, disks), started)
            if order.names is None:
                del sent
                worker.release_memory()  # a report on everything needs much memory
        elif time.monotonic() >= started + PASS_TIMEOUT_S:
            self._end_server()
            self._running = None
            self._handle_report(order, PassReport(error=ChildFailure.OVERDUE))

    def _handle_report(self, order: Order, report: PassReport, started: float = 0.0) -> None:
        current_time = time.monotonic()
        if report.locked:
            self._schedule.repeat(order, current_time + LOCK_RETRY_S)
            if not self._status.ready:
                # Waiting for another hbatune's lock must not time out the daemon's start.
                self._service.notify(f"EXTEND_TIMEOUT_USEC={int(4 * LOCK_RETRY_S * 1_000_000)}")
            return
        self._unwritten = report.unwritten
        # The pass has read nothing, so all of it is repeated.
        if report.subjects is None and report.error is not None:
            self._schedule.repeat(order, current_time + FAILED_PASS_DELAY_S)
        else:
            self._pass_ended = current_time
            self._postpone_audit(is_complete=order.names is None)
        report = self._writers.name_writers(report, started)
        retry, report = self._history.retry_conflicts(order, report)
        if retry is not None:
            self._schedule.repeat(retry, current_time + CONFLICT_DELAY_S)
        skipped, report = self._history.record(order, report, current_time, time.time())
        if skipped:
            self._reporter.left(skipped)
        self._reporter.passed(order.reason, replace(report, changes=self._status.news(report)))
        for scan in report.later:
            self._schedule.add_later(scan.events, current_time + scan.seconds)
        policy = self._configuration.policy
        if policy.profile is not None:
            self._monitor.watch(report, policy.config)
            self._depths.watch(report, current_time)
        self._publish_status(self._status.after(order, report, time.time()))

    def _postpone_audit(self, *, is_complete: bool = True) -> None:
        """Postpone the deadline of the next pass, and after a full pass also the audit."""
        due = time.monotonic() + self._configuration.policy.config.daemon.audit_seconds
        self._pass_due = due + PASS_LIMIT_S
        if is_complete:
            self._schedule.audit = due

    @property
    def _save_due(self) -> float:
        """The time of the next save of the status, if nothing happens until then."""
        due = self._saved + SAVE_EVERY_S
        if self._running is not None:
            show_due = self._running[2] + SHOWN_AFTER_S
            if self._saved < show_due:
                return min(due, show_due)
        return due

    def _save_status(self) -> None:
        self._saved = time.monotonic()
        started, pass_due = None, self._pass_due
        if self._running is not None:
            started = self._running[2]
            # A pass in progress does not postpone it: each pass may fail to get the lock.
            pass_due = min(pass_due, started + PASS_LIMIT_S)
        times = Times(
            clock=self._clock_id,
            started=self._started,
            saved=self._saved,
            save_due=self._saved + SAVE_LIMIT_S,
            pass_due=pass_due,
            pass_started=started,
            pass_ended=self._pass_ended,
        )
        files = (*self._unwritten, *self._monitor.unwritten)
        self._status = replace(self._status, times=times, unwritten=files)
        abandoned, lost_writes = children.collect_abandoned(), self._writers.overruns
        self._status = replace(self._status, abandoned=abandoned, lost_writes=lost_writes)
        self._save(self._status)

    def _publish_status(self, status: Status) -> None:
        """Save the status. The first time, notify systemd that the daemon is ready."""
        mistake = self._configuration.mistake
        message = None if mistake is None else mistake.message
        doubts = tuple(f"{doubt} ({doubt.hint})" for doubt in self._configuration.doubts)
        was_ready = self._status.ready
        self._status = replace(status, mistake=message, doubts=doubts, ready=True)
        self._save_status()
        if not was_ready:
            self._service.notify("READY=1")
            self._reporter.began(self._status.profile, doubts)

    def _shut_down(self) -> None:
        """Let the current pass end, and restore all values if that is configured."""
        self._service.notify("STOPPING=1")
        self._monitor.close()
        self._writers.stop()
        if self._running is not None:
            await_answer(self._running[0], STOP_TIMEOUT_S)
            self._server = None
        self._end_server()
        config = self._configuration.policy.config.daemon
        # During an upgrade of the package the daemon is restarted, and restores nothing.
        if config.rollback_on_stop and not has_living_author(self._paths.replacing):
            self._reporter.restored(self._restore_values())
        self._reporter.ended()

    def _restore_values(self) -> str | None:
        config = self._configuration.policy.config
        try:
            server = start_server(lambda _: orders.encode(work.restore_all(config)))
        except ChildError:
            # Its workers have deadlines, so it needs no separate process.
            return work.restore_all(config)
        sent = await_answer(server, RESTORE_ALL_TIMEOUT_S)
        return orders.decode_error(sent) if sent else ChildFailure.OVERDUE
