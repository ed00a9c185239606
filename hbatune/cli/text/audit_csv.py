"""An audit as one table of comma-separated values: a line for each host and thing said of it."""

from collections.abc import Iterator

from hbatune.cli.text.audit import (
    about,
    adapters_text,
    drift_values,
    found_text,
    nearest_text,
    stock_value,
    told,
    values_text,
)
from hbatune.cli.text.csv import Field, csv_text
from hbatune.fleet.audit import Audit

HEAD = ("about", "host", "severity", "what", "current", "wanted", "count", "profile", "source")
"""The columns; ``about`` says what a line is about.

It is one of host, odd, lone, drift, finding, stock and unusable.
``wanted`` is the usual value of alike hosts in lines about odd ones.
"""


def audit_csv(audit: Audit) -> str:
    """Return an audit as CSV, of hosts, odd facts, drift, findings, inventory and other files."""
    return csv_text(HEAD, _rows(audit))


def _rows(audit: Audit) -> Iterator[tuple[Field, ...]]:
    for host in audit.hosts:
        groups = f"group {host.group}"
        yield ("host", host.name, None, groups, host.kernel, None, host.drift, host.profile, None)
    for odd in audit.odd:
        values = (found_text(odd.found), values_text(odd.usual))
        yield ("odd", odd.host, None, about(odd), *values, None, None, None)
    for lone in audit.lone:
        what, near = adapters_text(lone.adapters), nearest_text(lone)
        yield ("lone", lone.host, None, what, near, None, None, None, None)
    for drift in audit.drift:
        for name in drift.hosts:
            values = drift_values(drift)
            yield ("drift", name, None, drift.setting, *values, None, drift.profile, drift.source)
    for each in map(told, audit.findings):
        for name in each.hosts:
            said = each.evidence if name == each.hosts[0] else None
            yield ("finding", name, each.severity, each.id, said, None, None, None, each.source)
    for stock in audit.inventory:
        what = f"{stock.what}" if stock.of is None else f"{stock.what} of {stock.of}"
        for name in stock.hosts:
            yield ("stock", name, None, what, stock_value(stock), None, None, None, None)
    for unusable in audit.unusable:
        yield ("unusable", unusable.file, None, unusable.reason, None, None, None, None, None)
