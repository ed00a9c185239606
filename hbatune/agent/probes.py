"""Schedule the daemon's probes of new endpoints: each once, within the hourly budget."""

from collections.abc import Iterable

from hbatune.agent import orders, work
from hbatune.agent.child import ChildError, ChildFailure, Server, start_server
from hbatune.policy.config import Config
from hbatune.policy.profile import Profile

NEVER = float("inf")
HOUR_S = 3600.0


class EndpointProbes:
    """The endpoints that wait for their probe, and the process of the current probe. Mutable.

    ``limit`` is the time of the daemon's clock at which the current probe is killed.
    """

    def __init__(self) -> None:
        self.limit = NEVER
        self._waiting: dict[str, None] = {}
        self._tried: set[str] = set()
        self._spent: list[tuple[float, float]] = []
        self._running: tuple[Server, float] | None = None

    def add(self, ids: Iterable[str]) -> None:
        """Probe these endpoints, once each."""
        self._waiting.update(dict.fromkeys(id for id in ids if id not in self._tried))

    @property
    def is_due(self) -> bool:
        """Whether endpoints wait and no probe is in progress."""
        return bool(self._waiting) and self._running is None

    def fileno(self) -> int | None:
        """Return the descriptor to wait for, or None if no probe is in progress."""
        return None if self._running is None else self._running[0].fileno()

    def start(
        self, config: Config, profile: Profile, current_time: float, longest: float
    ) -> orders.NewEndpointProbe | None:
        """Probe the waiting endpoints if configured. Return a result only if the start fails."""
        ids, self._waiting = tuple(self._waiting), {}
        self._spent = [probe for probe in self._spent if current_time - probe[0] < HOUR_S]
        seconds = config.daemon.probe_seconds - sum(seconds for _, seconds in self._spent)
        if not config.daemon.probe or seconds <= 0:
            return None
        # Before the probe, so an endpoint is not tried again if its probe fails.
        self._tried.update(ids)
        try:
            server = start_server(lambda _: work.probe_endpoints(ids, config, profile, seconds))
        except ChildError as error:
            return orders.NewEndpointProbe(error=error.message)
        self._running, self.limit = (server, seconds), current_time + longest
        return None

    def receive(self, current_time: float, *, ready: bool) -> orders.NewEndpointProbe | None:
        """Return the result of a finished probe, and charge its time to the budget.

        ``ready`` is whether its descriptor is ready. A probe that takes too long is killed.
        """
        if self._running is None:
            return None
        server, seconds = self._running
        sent = server.read() if ready else None
        if sent is None and (ready or current_time < self.limit):
            return None
        if sent != b"":  # it has not ended by itself
            server.kill()
        self._running, self.limit = None, NEVER
        failed = orders.NewEndpointProbe(0, seconds, ChildFailure.DIED)
        result = orders.decode_probe(sent) if sent else failed
        self._spent.append((current_time, result.seconds))
        return result

    def stop(self) -> None:
        """Kill the current probe: it only reads and leaves nothing unfinished."""
        if self._running is not None:
            self._running[0].kill()
            self._running, self.limit = None, NEVER
