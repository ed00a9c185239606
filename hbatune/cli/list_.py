"""`hbatune list`: the adapters and endpoints of this machine."""

import argparse
from collections.abc import Sequence

from hbatune.act import claims, paths
from hbatune.cli import documents
from hbatune.cli.fold import NOTHING, shown, what
from hbatune.cli.leftovers import tell
from hbatune.cli.output import Table, heading, say, show_json
from hbatune.cli.situation import (
    add_json,
    add_targets,
    configuration,
    peek,
    resolved,
    waiting_for,
)
from hbatune.facts.machine import gather
from hbatune.facts.model import Adapter, Endpoint, Kind, Link, Missing
from hbatune.facts.targets import select

_ADAPTER = ["ADAPTER", "FAMILY", "PRODUCT"]
_DOCUMENT = ["DOCUMENT"]  # only where the documents speak of one of the adapters
_FACTS = ["HOSTS", "LINK", "NUMA", "QUEUES", "TAKES", "DRIVER", "FIRMWARE"]
_ENDPOINT = ["TARGET", "ADAPTER", "ADDRESS", "WHAT", "VENDOR", "MODEL", "SIZE", "IN USE", "ID"]
_GIB = 1 << 30
_TIB = 1 << 40


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `list` takes."""
    add_targets(parser, "what to list")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print what is there."""
    stuck = claims.outstanding(paths.CLAIMS)
    machine = gather(
        (),
        deadline=configuration().act.deadline_seconds,
        avoid={claim.target: waiting_for(claim) for claim in stuck},
    )
    tell(peek(paths.JOURNAL, machine.boot_id), machine, stuck)
    chosen = select(machine, [resolved(name) for name in args.targets]) or machine.endpoints
    if args.json:
        show_json(documents.facts(machine))
        return 0
    heading("Adapters")
    _adapters(machine.adapters).show()
    say()
    heading("Endpoints")
    endpoints = Table(_ENDPOINT)
    endpoints.rows = [_endpoint(endpoint) for endpoint in chosen]
    endpoints.show()
    return 0


def _adapters(adapters: Sequence[Adapter]) -> Table:
    documented = any(adapter.document for adapter in adapters)
    table = Table([*_ADAPTER, *(_DOCUMENT if documented else []), *_FACTS])
    for adapter in adapters:
        named = [adapter.target, adapter.family, shown(adapter.product)]
        document = [shown(adapter.document)] if documented else []
        table.rows.append([*named, *document, *_facts(adapter)])
    return table


def _facts(adapter: Adapter) -> list[str]:
    hosts = " ".join(host.name for host in adapter.hosts) or adapter.controller
    commands = sorted({_known(host.can_queue) for host in adapter.hosts})
    return [
        shown(hosts),
        _link(adapter.link),
        shown(adapter.numa_node),
        _known(adapter.hw_queues),
        " ".join(commands) or NOTHING,
        _known(adapter.driver_version),
        _known(adapter.firmware),
    ]


def _endpoint(endpoint: Endpoint) -> list[str]:
    return [
        endpoint.target,
        shown(endpoint.adapter),
        endpoint.address or shown(endpoint.controller),
        _role(endpoint),
        endpoint.vendor or NOTHING,
        endpoint.model or NOTHING,
        _size(endpoint.size),
        _use(endpoint),
        endpoint.id,
    ]


def _role(endpoint: Endpoint) -> str:
    if endpoint.kind is Kind.PATH:
        return f"{what(endpoint)}, path of {endpoint.map}"
    if endpoint.kind is Kind.MAP:
        return f"{what(endpoint)}, map of {' '.join(endpoint.paths)}"
    return what(endpoint)


def _use(endpoint: Endpoint) -> str:
    return " ".join((*endpoint.mounts, *endpoint.holders)) or NOTHING


def _link(link: Link | None) -> str:
    if link is None or isinstance(link.speed, Missing) or isinstance(link.width, Missing):
        return NOTHING
    now = f"{link.speed:g} GT/s x{link.width}"
    if isinstance(link.max_speed, Missing) or isinstance(link.max_width, Missing):
        return now
    if (link.speed, link.width) == (link.max_speed, link.max_width):
        return now
    return f"{now} of {link.max_speed:g} GT/s x{link.max_width}"


def _size(size: int | Missing) -> str:
    if isinstance(size, Missing):
        return NOTHING
    if size >= _TIB:
        return f"{size / _TIB:.1f} TiB"
    return f"{size / _GIB:.1f} GiB" if size >= _GIB else f"{size / (1 << 20):.0f} MiB"


def _known(fact: object) -> str:
    return str(fact.reason) if isinstance(fact, Missing) else str(fact)
