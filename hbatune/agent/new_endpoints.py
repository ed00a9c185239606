"""A short probe of new endpoints: once, while the host is idle, and within a budget of time."""

import time
from collections.abc import Collection

import msgspec
from msgspec import Struct

from hbatune.act import lock, paths
from hbatune.act.lock import Lock
from hbatune.errors import HbatuneError, LockedError
from hbatune.facts.machine import gather
from hbatune.policy.config import Config
from hbatune.policy.model import Profile
from hbatune.probe import history, run
from hbatune.probe.model import ProbeResult
from hbatune.probe.run import fit_time
from hbatune.probe.selection import choose_representatives, with_probing
from hbatune.probe.workloads import short_form
from hbatune.settings.table import attributes

HOUR = 3600.0


class ProbeTime(Struct, frozen=True):
    """The times of probes on a monotonic clock, with the seconds that each was given."""

    probes: tuple[tuple[float, float], ...] = ()

    def left(self, budget: float, now: float) -> float:
        """Return the seconds that are left of the hour's budget."""
        return budget - sum(seconds for time, seconds in self.probes if now - time < HOUR)

    def plus(self, seconds: float, now: float) -> "ProbeTime":
        """Return a copy with a probe of so many seconds made now."""
        recent = tuple(each for each in self.probes if now - each[0] < HOUR)
        return ProbeTime((*recent, (now, seconds)))


class NewEndpointProbe(Struct, frozen=True):
    """The result: how many were measured, and why none could be kept, if so."""

    measured: int = 0
    seconds: float = 0.0
    error: str | None = None


decode = msgspec.json.Decoder(NewEndpointProbe).decode


def probe(ids: Collection[str], config: Config, profile: Profile, seconds: float) -> bytes:
    """Probe one endpoint of each kind, in so many seconds, for the history.

    Under the lock, so that nothing is set meanwhile, and not while a command holds targets: it may
    be measuring. Returns the result, encoded (``decode``). Raises nothing.
    """
    try:
        with Lock(paths.LOCK):
            # Their run measures, and a second load would spoil both results.
            if lock.held(paths.HOLDS):
                return msgspec.json.encode(NewEndpointProbe())
            return msgspec.json.encode(_probed(ids, config, profile, seconds))
    # No error: a command is at work, and a probe is only for an idle host.
    except LockedError:
        return msgspec.json.encode(NewEndpointProbe())
    except HbatuneError as error:
        return msgspec.json.encode(NewEndpointProbe(error=error.message))


def _probed(
    ids: Collection[str], config: Config, profile: Profile, seconds: float
) -> NewEndpointProbe:
    gathered = gather(attributes(), deadline=config.act.deadline_seconds)
    machine = with_probing(gathered, isolated=config.probe.isolated)
    there = {each.target for each in machine.endpoints if each.id in set(ids)}
    shared = config.daemon.probe_shared
    subjects = choose_representatives(machine, there, shared=shared).subjects
    asked = short_form(profile.probe, float(config.probe.seconds))
    budget = fit_time(subjects, asked, 1, seconds)
    results = [
        each
        for each in run.probe(budget.subjects, budget.workload)
        if isinstance(each, ProbeResult)
    ]
    now = time.time()
    records = [history.record(machine, profile.name, "daemon", each, now) for each in results]
    try:
        history.append(paths.HISTORY, records)
    except HbatuneError as error:
        return NewEndpointProbe(0, budget.seconds, error.message)
    return NewEndpointProbe(len(results), budget.seconds)
