"""What a machine has counted of errors, at one moment, to be compared with another moment's."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from hbatune.facts.health import Health
from hbatune.facts.model import Machine

DAY = 24 * 3600  # seconds for which an observation is worth comparing with
PAUSE = 600  # seconds between two observations that are kept


class Counted(Struct, frozen=True):
    """The counters that are not 0, by the endpoint's id or the adapter's name.

    ``at`` is in seconds since the epoch; a counter begins anew with each boot.
    """

    boot_id: str
    at: int
    values: dict[str, dict[str, int]]

    def value(self, target: str, name: str) -> int:
        """Return one counter."""
        return self.values.get(target, {}).get(name, 0)


def counted(machine: Machine, health: Health, at: int) -> Counted:
    """Return what was counted, as seen ``at`` this time."""
    values: dict[str, dict[str, int]] = {}
    for target, name, count in _all(machine, health):
        if isinstance(count, int) and count > 0:
            values.setdefault(target, {})[name] = count
    return Counted(machine.boot_id, at, values)


def earlier(observations: Sequence[Counted], now: Counted) -> Counted | None:
    """Return the observation of this boot to compare with: the oldest of the last 24 hours.

    Where there is none, the newest of those before.
    """
    before = [each for each in observations if each.boot_id == now.boot_id and each.at < now.at]
    recent = [each for each in before if each.at >= now.at - DAY]
    if recent:
        return min(recent, key=lambda each: each.at)
    return max(before, key=lambda each: each.at, default=None)


def kept(observations: Sequence[Counted], now: Counted) -> tuple[Counted, ...]:
    """Return what is to be remembered: those worth comparing with, and this one."""
    before = sorted(
        (each for each in observations if each.boot_id == now.boot_id and each.at < now.at),
        key=lambda each: each.at,
    )
    old = [each for each in before if each.at < now.at - DAY]
    recent = [each for each in before if each.at >= now.at - DAY]
    last = (recent or old)[-1:]
    if last and now.at - last[0].at < PAUSE:
        return (*old[-1:], *recent)
    return (*old[-1:], *recent, now)


def _all(machine: Machine, health: Health) -> Iterator[tuple[str, str, object]]:
    for endpoint in machine.endpoints:
        if disk := health.disks.get(endpoint.target):
            yield endpoint.id, "errors", disk.errors
            yield endpoint.id, "timeouts", disk.timeouts
    for target, adapter in health.adapters.items():
        if adapter.errors:
            yield target, "correctable", adapter.errors.correctable
            yield target, "nonfatal", adapter.errors.nonfatal
            yield target, "fatal", adapter.errors.fatal
        for name, count in adapter.link_errors.items():
            yield target, name, count
