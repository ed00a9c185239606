"""The daemon without its loop: its configuration, its history of passes, and single passes."""

from hbatune.agent import passes
from hbatune.agent.configuration import LastGoodConfiguration, Policy
from hbatune.agent.events import DeviceEvent
from hbatune.agent.orders import Order, PassReason, PassReport, decode_report
from hbatune.agent.schedule import PassHistory
from hbatune.errors import HbatuneError
from hbatune.policy.config import load_configuration
from hbatune.policy.library import installed_library
from hbatune.policy.rules import Doubts
from hbatune.policy.vendors import load_chosen_profile
from tests.kernel.seams import World

STEP = 400.0
"""Seconds between two passes: so few fit into the damping window that no setting is given up."""


class Keeper:
    """A daemon on a modelled world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._clock = 0.0
        self._last_good = LastGoodConfiguration(installed_library().site, _policy)
        audit = self._last_good.policy.config.daemon.audit_seconds
        self._memory: tuple[Policy, passes.Memory] | None = None
        self._experience = PassHistory(audit, current_time=self._clock, epoch=self._clock)

    @property
    def policy(self) -> Policy:
        """The policy in force."""
        return self._last_good.policy

    def look(self, reason: PassReason, names: tuple[str, ...] | None) -> PassReport | None:
        """Make one pass as the loop does; None where it was killed or no profile is active."""
        self._clock += STEP
        forced = reason is PassReason.RELOAD
        if self._last_good.refresh(force=forced) or forced:
            audit = self._last_good.policy.config.daemon.audit_seconds
            self._experience.reset(audit, None)
        config, profile = self._last_good.policy.config, self._last_good.policy.profile
        if profile is None:
            return None
        events = tuple(DeviceEvent(name) for name in names or ())
        order = self._experience.order(reason, events, self._clock)
        memory = self._remembered(order)
        sent = self._world.call(lambda: passes.run(order, config, profile, memory))
        if sent is None:
            self._retire()
            return None
        report = decode_report(sent)
        # As in the loop: a pass that found the lock taken has seen nothing worth remembering.
        if not report.locked:
            _, report = self._experience.record(order, report, self._clock, self._clock)
            report = self._experience.retry_conflicts(order, report)[1]
        return report

    def _remembered(self, order: Order) -> passes.Memory:
        """Return what the process remembers that makes the pass: a new one looks at everything."""
        policy = self._last_good.policy
        if self._memory is None or self._memory[0] is not policy or order.names is None:
            self._retire()
            self._memory = policy, passes.Memory()
        return self._memory[1]

    def _retire(self) -> None:
        if self._memory is not None:
            self._memory[1].close()
            self._memory = None


def started(world: World) -> Keeper | None:
    """Return a daemon, None where its first configuration has a mistake."""
    try:
        return Keeper(world)
    except HbatuneError:
        return None


def _policy(doubts: Doubts) -> Policy:
    config = load_configuration()
    return Policy(config, load_chosen_profile(None, config, doubts) if config.profile else None)
