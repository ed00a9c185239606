"""Rows for people: grouped by adapter, and what is the same on many LUNs in one line."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from hbatune.cli.text.documents import known
from hbatune.facts import model
from hbatune.facts.model import Endpoint, Machine, Medium
from hbatune.probe.selection import natural_key

NOTHING = "-"


class Placed(Protocol):
    """A row about one target, which hangs on an adapter."""

    @property
    def target(self) -> str: ...  # noqa: D102

    @property
    def adapter(self) -> str | None: ...  # noqa: D102


R = TypeVar("R", bound=Placed)


def by_adapter(rows: Iterable[R]) -> dict[str | None, list[R]]:
    """Return the rows of each adapter, in their order; None for what spans several."""
    groups: dict[str | None, list[R]] = {}
    for row in rows:
        groups.setdefault(row.adapter, []).append(row)
    return groups


def fold(rows: Iterable[R], content: Callable[[R], object]) -> Iterator[tuple[list[str], R]]:
    """Yield the targets whose rows have the same content, and one of those rows."""
    alike: dict[object, tuple[list[str], R]] = {}
    for row in rows:
        alike.setdefault(content(row), ([], row))[0].append(row.target)
    for targets, row in alike.values():
        yield sorted(targets, key=natural_key), row


def names(targets: Sequence[str]) -> str:
    """Return a few names, or the first and last of many with their count."""
    if len(targets) <= 3:
        return " ".join(targets)
    return f"{targets[0]} … {targets[-1]} ({len(targets)})"


def adapter_line(target: str | None, machine: Machine) -> str:
    """Return one line that says which adapter this is."""
    adapter = next((each for each in machine.adapters if each.target == target), None)
    if adapter is None:
        return "several adapters" if target is None else target
    driver, firmware = known(adapter.driver_version), known(adapter.firmware)
    parts = [
        adapter.target,
        adapter.controller,
        adapter.family,
        driver and f"driver {driver}",
        firmware and f"firmware {firmware}",
    ]
    return "  ".join(part for part in parts if part)


def what(endpoint: Endpoint) -> str:
    """Return what an endpoint is, in two words: ``sata ssd``, ``nvme``, ``unknown``."""
    if endpoint.protocol is model.Protocol.UNKNOWN:
        return "unknown"
    if endpoint.medium is Medium.UNKNOWN or str(endpoint.medium) == str(endpoint.protocol):
        return str(endpoint.protocol)
    return f"{endpoint.protocol} {endpoint.medium}"


def shown(value: object) -> str:
    """Return a value as text, and a dash for none."""
    return NOTHING if value is None else str(value)
