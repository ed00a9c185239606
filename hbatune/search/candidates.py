"""The candidates of a tournament: what could be set on a disk instead of what is in force. Pure.

Which candidates are worth probes hangs on what a probe can see. Reads that pass the page cache by
see where a request completes and whether it is merged; they see neither read-ahead nor writeback,
and a scheduler only beside other work, which is a tournament of its own.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from hbatune.facts.model import Attribute, Endpoint
from hbatune.loader import Figure
from hbatune.plan.rows import Row, State
from hbatune.search.tournament import MOST_CANDIDATES
from hbatune.settings.limits import SCHEDULER_FILE, scheduler_of
from hbatune.settings.resolve import resolve_endpoint
from hbatune.settings.setting import Legal, Value, choices
from hbatune.settings.table import NR_REQUESTS, SCHEDULER, SETTINGS

SEEN_BY_READS = ("rq_affinity", "nomerges")
"""Settings that a lone reader's rate shows."""
SEEN_BESIDE_WRITES = (SCHEDULER, NR_REQUESTS)
"""Settings that order and hold back requests, which only counts where several kinds wait."""
REQUESTS = (64, 256, 1024)
"""Numbers of requests to try with the scheduler in force, beside the profile's."""


class Candidate(Struct, frozen=True):
    """Values to set together, by setting; none at all is what is in force."""

    values: dict[str, Value]


def seen_by_reads(endpoint: Endpoint, rows: Iterable[Row]) -> tuple[Candidate, ...]:
    """Return what is in force first, then the profile's values and all others, one at a time.

    ``rows`` are the plan's for this endpoint. Fewer than two candidates are no tournament.
    """
    now = _now(endpoint, SEEN_BY_READS)
    wanted = _wanted(rows, now)
    others: list[dict[str, Value]] = [
        {name: value}
        for name in now
        for value in range(SETTINGS[name].low, (SETTINGS[name].high or 0) + 1)
        if value != now[name]
    ]
    return _distinct(endpoint, [{}, wanted, *others])


def seen_beside_writes(endpoint: Endpoint, rows: Iterable[Row]) -> tuple[Candidate, ...]:
    """Return what is in force first, then the profile's scheduler, the kernel's, and requests.

    Without a scheduler the number of requests is the adapter's tag set, which is never lowered and
    would stay low: a disk below it is left alone.
    """
    now = _now(endpoint, SEEN_BESIDE_WRITES)
    if SCHEDULER not in now:
        return (Candidate({}),)
    if now[SCHEDULER] == "none" and now.get(NR_REQUESTS) != endpoint.tags:
        return (Candidate({}),)
    wanted = _wanted(rows, now)
    found = endpoint.attributes[SCHEDULER_FILE]
    offered = choices(found.text) if isinstance(found, Attribute) else ()
    schedulers: list[dict[str, Value]] = [
        {SCHEDULER: name} for name in offered if name != now[SCHEDULER]
    ]
    numbers: list[dict[str, Value]] = [
        {NR_REQUESTS: number}
        for number in REQUESTS
        if now[SCHEDULER] != "none" and number != now.get(NR_REQUESTS, number)
    ]
    return _distinct(endpoint, [{}, wanted, *schedulers, *numbers])


def rate_score(iops: Figure, p99_us: Figure, objective_us: Figure | None) -> float:
    """Return a rate, lessened by the factor by which its p99 misses the objective."""
    return iops if objective_us is None else iops * min(1.0, objective_us / p99_us)


def _now(endpoint: Endpoint, names: Iterable[str]) -> dict[str, Value]:
    """Return the values in force of those of the settings that can be read and written."""
    found: dict[str, Value] = {}
    for name in names:
        attribute = endpoint.attributes.get(SETTINGS[name].path)
        if isinstance(attribute, Attribute) and attribute.writable:
            try:
                found[name] = SETTINGS[name].parse(attribute.text)
            except ValueError:
                continue
    return found


def _wanted(rows: Iterable[Row], now: Mapping[str, Value]) -> dict[str, Value]:
    """Return what the profile would change of these settings."""
    return {
        row.setting: row.value
        for row in rows
        if row.state is State.DRIFT and row.setting in now and row.value is not None
    }


def _distinct(endpoint: Endpoint, tried: Iterable[dict[str, Value]]) -> tuple[Candidate, ...]:
    """Return the first of those that are legal and differ, as many as a tournament takes."""
    legal = (values for values in tried if _legal(endpoint, values))
    found: list[Candidate] = []
    for values in legal:
        if Candidate(values) not in found:
            found.append(Candidate(values))
    return tuple(found[:MOST_CANDIDATES])


def _legal(endpoint: Endpoint, values: Mapping[str, Value]) -> bool:
    """Whether the device takes just these values."""
    now = _now(endpoint, values)
    scheduler = values.get(SCHEDULER, scheduler_of(endpoint.attributes))
    return all(
        resolve_endpoint(endpoint, name, value, now[name], scheduler) == Legal(value)
        for name, value in values.items()
    )
