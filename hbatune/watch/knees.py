"""The knees that sweeps on this machine have found. Pure."""

from collections.abc import Iterable

from hbatune.probe.history import Record


def knees(records: Iterable[Record]) -> dict[str, int]:
    """Return by endpoint id the depth at which the latest sweep found it just full."""
    found: dict[str, int] = {}
    for record in sorted(records, key=lambda record: record.time):
        if record.knee is not None:
            found[record.id] = record.knee.depth
    return found
