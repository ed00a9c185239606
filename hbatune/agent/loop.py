"""The daemon's loop: waits for events, signals and the end of passes, and starts the next pass.

It wakes up for the watchdog and the audit, and otherwise only when something happens.
"""

import os
import select
import signal
import time
from collections.abc import Callable, Collection, Iterable
from typing import Protocol

from msgspec.structs import replace

from hbatune.act import hands_off
from hbatune.agent import newcomers, passes
from hbatune.agent.agenda import SETTLE, Agenda
from hbatune.agent.believed import Believed
from hbatune.agent.child import Child, ChildError
from hbatune.agent.experience import Experience
from hbatune.agent.listener import Heard
from hbatune.agent.newcomers import Probed, Spent
from hbatune.agent.orders import Change, Order, Reason, Report
from hbatune.agent.sentry import Sentry
from hbatune.agent.service import Service
from hbatune.agent.status import Status
from hbatune.errors import UsageError
from hbatune.watch.watch import Event
from hbatune.workers import this_process

CROSSED = 0.5
"""Seconds to wait where whoever made the event has set something between plan and write."""
RETRY = 2.0
"""Seconds to wait while another hbatune is at work."""
LATER = 30.0
"""Seconds to wait after a pass that could not be made."""
LONGEST = 900.0
"""Seconds after which a pass is given up: its writers have deadlines and keep far below."""
PATIENCE = 20.0
"""Seconds that a pass under way has to end when the daemon is to stop."""
PUTTING_BACK = 120.0
"""Seconds that putting everything back may take then; the unit's TimeoutStopSec is above both."""

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Ears(Protocol):
    """What events are heard with: a ``Listener``."""

    def fileno(self) -> int:
        """Return the descriptor to wait for."""

    def hear(self) -> Heard:
        """Take all events that wait."""


class Teller(Protocol):
    """Puts into words what happens."""

    def began(self, profile: str | None) -> None:
        """The daemon is ready."""

    def passed(self, reason: Reason, report: Report) -> None:
        """A pass has ended."""

    def left(self, changes: Collection[Change]) -> None:
        """Others keep setting these back: they are left alone from now on."""

    def overrun(self) -> None:
        """Events were lost, so that everything is looked at."""

    def reloaded(self, profile: str | None, mistake: UsageError | None) -> None:
        """Another configuration is in force, or the old one stays for this mistake."""

    def probed(self, found: Probed) -> None:
        """What has appeared was measured."""

    def alerted(self, event: Event) -> None:
        """An alert was raised or cleared."""

    def unpublished(self, problem: str) -> None:
        """There are no metrics although they are wanted."""

    def restored(self, problem: str | None) -> None:
        """Everything was put back at the end, or why not."""

    def ended(self) -> None:
        """The daemon stops."""


Work = Callable[[Order], bytes]


class Daemon:
    """Everything that has to be known between two events, and what to do upon the next one.

    ``open`` is what an earlier daemon of this boot has left open.
    """

    def __init__(
        self,
        ears: Ears,
        believed: Believed,
        service: Service,
        teller: Teller,
        save: Callable[[Status], None],
        sentry: Sentry,
        *,
        open: Iterable[Change] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ears, self._believed = ears, believed
        self._service, self._teller, self._save = service, teller, save
        self._sentry = sentry
        self._clock = clock
        self._status = Status(this_process(), time.time(), None)
        self._agenda = Agenda(clock())
        audit = believed.policy.config.daemon.audit_seconds
        self._experience = Experience(audit, open, now=clock(), epoch=time.time())
        self._met: set[str] = set()
        self._problem: str | None = None
        self._alive = clock()
        self._under_way: tuple[Child, Order, float] | None = None
        self._probing: tuple[Child, float, float] | None = None
        self._new: dict[str, None] = {}
        self._spent = Spent()
        self._ready = False
        self._asked: list[int] = []

    def run(self) -> None:
        """Keep it so until SIGTERM or SIGINT."""
        wake, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        before = {number: signal.signal(number, self._ask) for number in _SIGNALS}
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        self._save(self._status)
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

    # -- what is to be done ------------------------------------------------------------------

    def _start(self) -> None:
        """Start the pass that is due, unless one is under way."""
        now = self._clock()
        if self._under_way is not None or not self._agenda.ripe(now):
            return
        self._refresh()
        config, profile = self._believed.policy.config, self._believed.policy.profile
        reason, events = self._agenda.take()
        if profile is None or hands_off.load().whole:
            self._rest()
            return
        order = self._experience.order(reason, events, now)
        try:
            child = Child(lambda: passes.run(order, config, profile))
        except ChildError as error:
            self._take(order, Report(error=error.message, hint=error.hint))
            return
        self._under_way = child, order, now + LONGEST

    def _measure(self) -> None:
        """Probe what has appeared, while nothing else is to be done and there is time left."""
        busy = self._under_way is not None or self._probing is not None or self._agenda.announced
        policy = self._believed.policy
        if busy or not self._new or policy.profile is None:
            return
        ids, profile, config = tuple(self._new), policy.profile, policy.config
        self._new = {}
        now = self._clock()
        seconds = self._spent.left(config.daemon.probe_seconds, now)
        if config.daemon.probe and seconds > 0:
            self._met.update(ids)
            try:
                child = Child(lambda: newcomers.probe(ids, config, profile, seconds))
            except ChildError as error:
                self._teller.probed(Probed(error=error.message))
                return
            self._probing = child, seconds, now + LONGEST

    def _refresh(self, *, force: bool = False) -> None:
        """Go by the newest configuration that makes sense."""
        mistake = self._believed.mistake
        changed = self._believed.refresh(force=force)
        if changed:
            self._forgive()
            self._agenda.everything(Reason.CONFIGURED, self._clock())
        if changed or self._believed.mistake is not mistake:
            profile = self._believed.policy.profile
            name = None if profile is None else profile.name
            self._teller.reloaded(name, self._believed.mistake)

    def _rest(self) -> None:
        """Do nothing: no profile is active, or everything was rolled back."""
        self._put_off_audit()
        self._sentry.rest()
        quiet = replace(self._status, profile=None, open=(), error=None, alerts=())
        self._tell_status(replace(quiet, rolled_back=hands_off.load().everything))

    # -- what is waited for ------------------------------------------------------------------

    def _wait(self, wake: int) -> None:
        """Wait for the next thing to happen, and take it."""
        poll = select.poll()
        poll.register(wake, select.POLLIN)
        poll.register(self._ears.fileno(), select.POLLIN)
        if self._under_way is not None:
            poll.register(self._under_way[0].fileno(), select.POLLIN | select.POLLHUP)
        if self._probing is not None:
            poll.register(self._probing[0].fileno(), select.POLLIN | select.POLLHUP)
        asked = self._sentry.fileno()
        if asked is not None:
            poll.register(asked, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(self._patience())}
        self._pet()
        if wake in ready:
            os.read(wake, 512)
            self._reload()
        if self._ears.fileno() in ready:
            self._listen()
        if asked in ready:
            self._sentry.serve()
        if self._clock() >= self._sentry.due:
            self._watch()
        if self._under_way is not None:
            self._look_after(*self._under_way, ready)
        if self._probing is not None:
            self._measured(*self._probing, ready)

    def _patience(self) -> float:
        """Return how many milliseconds nothing has to be done if nothing happens."""
        now = self._clock()
        times = [self._agenda.due if self._under_way is None else self._under_way[2]]
        if self._probing is not None:
            times.append(self._probing[2])
        times.append(self._sentry.due)
        if self._service.watchdog is not None:
            times.append(self._alive + self._service.watchdog / 2)
        return max(0.0, min(times) - now) * 1000 if min(times) < float("inf") else -1

    def _pet(self) -> None:
        """Let the watchdog know, if half of its time is over."""
        if self._service.watchdog is not None:
            now = self._clock()
            if now - self._alive >= self._service.watchdog / 2 - 0.001:
                self._service.notify("WATCHDOG=1")
                self._alive = now

    def _watch(self) -> None:
        """Look at what storage does now, and tell what became of alerts."""
        state, events = self._sentry.tick(self._status)
        if self._sentry.problem != self._problem:
            self._problem = self._sentry.problem
            if self._problem is not None:
                self._teller.unpublished(self._problem)
        for event in events:
            self._teller.alerted(event)
        if events:
            self._tell_status(replace(self._status, alerts=state.alerts))

    def _reload(self) -> None:
        if signal.SIGHUP not in self._asked:
            return
        self._asked = [number for number in self._asked if number != signal.SIGHUP]
        self._service.notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
        self._forgive()
        self._agenda.everything(Reason.RELOAD, self._clock())
        self._refresh(force=True)
        if self._ready:
            self._service.notify("READY=1")

    def _forgive(self) -> None:
        audit = self._believed.policy.config.daemon.audit_seconds
        self._experience.forgive(audit, self._under_way[1] if self._under_way else None)

    def _listen(self) -> None:
        heard = self._ears.hear()
        if heard.overrun:
            self._status = replace(self._status, overruns=self._status.overruns + 1)
            self._teller.overrun()
            self._agenda.everything(Reason.OVERRUN, self._clock() + SETTLE)
        if heard.events:
            self._agenda.hear(heard.events, self._clock())

    # -- what came of it ---------------------------------------------------------------------

    def _look_after(self, child: Child, order: Order, limit: float, ready: set[int]) -> None:
        """Take what a pass has sent; give it up where it takes too long."""
        if child.fileno() in ready:
            sent = child.read()
            if sent is None:
                return
            self._under_way = None
            self._take(order, passes.decode(sent) if sent else Report(error=_DIED))
        elif self._clock() >= limit:
            child.kill()
            self._under_way = None
            self._take(order, Report(error=_OVERDUE))

    def _take(self, order: Order, report: Report) -> None:
        """Go on from the report of a pass."""
        now = self._clock()
        if report.locked:
            self._agenda.again(order, now + RETRY)
            if not self._ready:
                self._service.notify(f"EXTEND_TIMEOUT_USEC={int(4 * RETRY * 1_000_000)}")
            return
        if report.machine is None and report.error is not None:
            self._agenda.again(order, now + LATER)
        elif order.names is None:
            self._put_off_audit()
        crossed, report = self._experience.crossed(order, report)
        if crossed is not None:
            self._agenda.again(crossed, now + CROSSED)
        left, report = self._experience.learn(order, report, now, time.time())
        if left:
            self._teller.left(left)
        self._teller.passed(order.reason, replace(report, changes=self._status.news(report)))
        if order.reason is Reason.EVENT:
            self._new.update(dict.fromkeys(id for id in report.new if id not in self._met))
        policy = self._believed.policy
        if policy.profile is not None:
            self._sentry.look_at(report, policy.config, policy.profile)
        self._tell_status(self._status.after(order, report, time.time()))

    def _measured(self, child: Child, seconds: float, limit: float, ready: set[int]) -> None:
        """Take what a probe has sent, and remember what it has cost."""
        if child.fileno() in ready:
            sent = child.read()
            if sent is None:
                return
        elif self._clock() >= limit:
            child.kill()
            sent = b""
        else:
            return
        self._probing = None
        found = newcomers.decode(sent) if sent else Probed(0, seconds, _DIED)
        self._spent = self._spent.plus(found.seconds, self._clock())
        self._teller.probed(found)

    def _put_off_audit(self) -> None:
        seconds = self._believed.policy.config.daemon.audit_seconds
        self._agenda.audit(self._clock() + seconds)

    def _tell_status(self, found: Status) -> None:
        """Tell systemd and whoever asks; the first time, that the daemon is ready."""
        mistake = self._believed.mistake
        told = None if mistake is None else mistake.message
        self._status = replace(found, mistake=told, ready=True)
        self._save(self._status)
        if not self._ready:
            self._ready = True
            self._service.notify("READY=1")
            self._teller.began(self._status.profile)

    def _stop(self) -> None:
        """Let a pass under way come to its end, and put everything back where that is wanted."""
        self._service.notify("STOPPING=1")
        self._sentry.close()
        if self._probing is not None:
            self._probing[0].kill()
        if self._under_way is not None:
            _finish(self._under_way[0], self._clock() + PATIENCE, self._clock)
        if self._believed.policy.config.daemon.rollback_on_stop:
            self._teller.restored(self._put_back().error)
        self._teller.ended()

    def _put_back(self) -> Report:
        config = self._believed.policy.config
        try:
            child = Child(lambda: passes.put_back(config))
        except ChildError as error:
            return Report(error=error.message, hint=error.hint)
        sent = _finish(child, self._clock() + PUTTING_BACK, self._clock)
        return passes.decode(sent) if sent else Report(error=_OVERDUE)


_DIED = "a pass has died"
_OVERDUE = "a pass did not come to its end"


def _finish(child: Child, limit: float, clock: Callable[[], float]) -> bytes | None:
    """Wait for a child to end and return what it has sent; kill it where it does not in time."""
    while (left := limit - clock()) > 0:
        if select.select([child], [], [], left)[0] and (sent := child.read()) is not None:
            return sent
    child.kill()
    return None
