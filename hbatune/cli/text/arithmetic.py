"""How the depth of a LUN of a shared array comes about, in lines for people."""

from collections.abc import Iterator

from hbatune.facts.model import Attribute, Endpoint, Kind, Protocol
from hbatune.policy.budget import MOST, VENDOR_DEFAULT, DepthBudget, LunLimit, PortShare

_DEPTH = "device/queue_depth"


def depth_lines(budget: DepthBudget | None, endpoint: Endpoint) -> Iterator[str]:
    """Yield the arithmetic of a budget, or what stands where the site has said nothing."""
    if budget is not None:
        yield f"array     {budget.array}, as the site describes it"
        if budget.port:
            yield f"port      {_port(budget.port)}"
        if budget.lun:
            yield f"LUN       {_lun(budget.lun)}"
        yield f"budget    {budget.depth}: the smallest of these, and {MOST} at most (D2-2)"
    elif endpoint.protocol in (Protocol.FC, Protocol.ISCSI) and endpoint.kind is not Kind.MAP:
        now = endpoint.attributes.get(_DEPTH)
        own = now.text if isinstance(now, Attribute) else "unknown"
        yield f"default   the driver's own depth, {own} now, stands; vendors of FC cards went by"
        yield f"          {VENDOR_DEFAULT} (D2-1). [[site.array]] in hbatune.toml gives it a budget"


def _port(share: PortShare) -> str:
    told = f"a limit of {share.limit} / {_count(share.hosts, 'host')}"
    if share.luns > 1:
        told += f" / {_count(share.luns, 'path')} of this host"
    return f"{told} = {share.depth} (D2-4, D2-3)"


def _lun(limit: LunLimit) -> str:
    told = f"{limit.base}"
    if limit.per_data_drive:
        told += f" + {limit.per_data_drive} x {_count(limit.data_drives, 'data drive')}"
        told += f" = {limit.total}"
    if limit.paths > 1:
        told += f" / {_count(limit.paths, 'path')} in use = {limit.depth}"
    return f"{told} ({f'{limit.known}, D2-5' if limit.known else 'as the site says'})"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
