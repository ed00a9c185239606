"""Which new endpoints the daemon probes, and when: each once, within the hour's budget."""

from collections.abc import Iterable

from hbatune.agent import orders, work
from hbatune.agent.child import DIED, Child, ChildError
from hbatune.agent.orders import NewEndpointProbe, ProbeTime
from hbatune.policy.config import Config
from hbatune.policy.profile import Profile

NEVER = float("inf")


class EndpointProbes:
    """The endpoints that wait for their probe, and the process of the one under way. Mutable.

    ``limit`` is the time of the daemon's clock at which that is given up.
    """

    def __init__(self) -> None:
        self.limit = NEVER
        self._waiting: dict[str, None] = {}
        self._tried: set[str] = set()
        self._spent = ProbeTime()
        self._under_way: tuple[Child, float] | None = None

    def add(self, ids: Iterable[str]) -> None:
        """Probe these endpoints, once each."""
        self._waiting.update(dict.fromkeys(id for id in ids if id not in self._tried))

    @property
    def is_due(self) -> bool:
        """Whether endpoints wait, and none is being probed."""
        return bool(self._waiting) and self._under_way is None

    def fileno(self) -> int | None:
        """Return the descriptor to wait for, None where no probe is under way."""
        return None if self._under_way is None else self._under_way[0].fileno()

    def start(
        self, config: Config, profile: Profile, now: float, longest: float
    ) -> NewEndpointProbe | None:
        """Probe what waits, if that is wanted; return the result of one that cannot be started."""
        ids, self._waiting = tuple(self._waiting), {}
        seconds = self._spent.left(config.daemon.probe_seconds, now)
        if not config.daemon.probe or seconds <= 0:
            return None
        # Before the probe: an endpoint whose probe fails is not tried again, either.
        self._tried.update(ids)
        try:
            child = Child(lambda: work.probe(ids, config, profile, seconds))
        except ChildError as error:
            return NewEndpointProbe(error=error.message)
        self._under_way, self.limit = (child, seconds), now + longest
        return None

    def receive(self, now: float, *, ready: bool) -> NewEndpointProbe | None:
        """Return the result of a probe that has ended, and charge its time to the budget.

        ``ready`` is whether its descriptor is; one that takes too long is killed.
        """
        if self._under_way is None:
            return None
        child, seconds = self._under_way
        if ready:
            sent = child.read()
            if sent is None:
                return None
        elif now >= self.limit:
            child.kill()
            sent = b""
        else:
            return None
        self._under_way, self.limit = None, NEVER
        found = orders.decode_probe(sent) if sent else NewEndpointProbe(0, seconds, DIED)
        self._spent = self._spent.plus(found.seconds, now)
        return found

    def stop(self) -> None:
        """Kill the one under way: a probe only reads, and leaves nothing unfinished."""
        if self._under_way is not None:
            self._under_way[0].kill()
            self._under_way, self.limit = None, NEVER
