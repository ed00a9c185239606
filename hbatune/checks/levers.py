"""Checks of what a driver's own levers are set to: coalescing, limits of targets, its state.

Each is an attribute of a SCSI host, or a module option, that a family declares (``inspected``).
"""

from collections import defaultdict
from collections.abc import Iterator

from hbatune.checks.depth import depth_of
from hbatune.checks.model import Check, CheckInput, Finding, Severity
from hbatune.facts.model import Adapter, Missing, Reason

ZIO_DEFAULT = 200
"""µs for which qla2xxx gathers completions once zio is on (qla_def.h: QLA_ZIO_DEFAULT_TIMER)."""

_TARGETS = "lpfc_tgt_queue_depth"
_TIME = "lpfc_max_scsicmpl_time"
_STATES = {"2": "fault", "3": "in reset", "4": "unrecoverable"}  # mpi3mr: MPI3MR_BSG_ADPSTATE_*


def find_coalescing(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find adapters that gather completions for longer than their driver does by itself."""
    for adapter in seen.adapters:
        for host in adapter.hosts:
            delay, count = (
                _number(seen, adapter, host.name, name)
                for name in ("lpfc_cr_delay", "lpfc_cr_count")
            )
            if delay and count != 1:  # a count of 1 waits for nobody
                yield _waiting(check, adapter, host.name, "lpfc_cr_delay", delay * 1000)
            zio = _text(seen, adapter, host.name, "zio")
            timer = _text(seen, adapter, host.name, "zio_timer").removesuffix("us").strip()
            if zio.startswith("Mode") and timer.isdecimal():
                grave = Severity.ADVICE if int(timer) > ZIO_DEFAULT else Severity.INFO
                yield _waiting(check, adapter, host.name, "zio", int(timer), grave)
        # 1 coalesces on all queues: of mpt3sas and of megaraid_sas alike.
        if _option(seen, adapter, "perf_mode") == "1":
            yield _waiting(check, adapter, None, "perf_mode=1", None)


def _waiting(
    check: Check,
    adapter: Adapter,
    host: str | None,
    lever: str,
    micros: int | None,
    severity: Severity = Severity.ADVICE,
) -> Finding:
    return check.found(severity, adapter, host=host, lever=lever, micros=micros)


def find_target_limits(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find targets whose LUNs together want more commands than the driver lets one target have."""
    wanted: dict[tuple[str, str], int] = defaultdict(int)
    luns: dict[tuple[str, str], int] = defaultdict(int)
    for each in seen.machine.endpoints:
        if each.host is not None and each.address and (depth := depth_of(each)) is not None:
            target = (each.host.name, each.address.rpartition(":")[0])
            wanted[target] += depth
            luns[target] += 1
    for adapter in seen.adapters:
        for host in adapter.hosts:
            limit = _number(seen, adapter, host.name, _TARGETS)
            own = {target: sum for target, sum in wanted.items() if target[0] == host.name}
            if not limit or not own:
                continue
            target, most = max(own.items(), key=lambda each: each[1])
            if most > limit:
                yield check.found(
                    Severity.ADVICE,
                    adapter,
                    host=host.name,
                    limit=limit,
                    luns=luns[target],
                    depths=most,
                    to=target[1],
                )


def find_time_limits(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find hosts whose driver lowers the depth of targets with slow commands."""
    for adapter in seen.adapters:
        for host in adapter.hosts:
            if limit := _number(seen, adapter, host.name, _TIME):
                yield check.found(Severity.ADVICE, adapter, host=host.name, limit=limit)


def find_broken_adapters(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find adapters that say of themselves that they are not at work."""
    for adapter in seen.adapters:
        for host in adapter.hosts:
            state = _STATES.get(_text(seen, adapter, host.name, "adp_state"))
            if state is not None:
                resetting = state == "in reset"
                grave = Severity.WARNING if resetting else Severity.CRITICAL
                yield check.found(grave, adapter, host=host.name, state=state)


def _text(seen: CheckInput, adapter: Adapter, host: str, name: str) -> str:
    health = seen.of_adapter(adapter)
    found = health.inspected.get(f"{host} {name}") if health else None
    return found if isinstance(found, str) else ""


def _number(seen: CheckInput, adapter: Adapter, host: str, name: str) -> int | None:
    text = _text(seen, adapter, host, name)
    return int(text) if text.isdecimal() else None


def _option(seen: CheckInput, adapter: Adapter, name: str) -> str | None:
    health = seen.of_adapter(adapter)
    found = health.options.get(name, Missing(Reason.ABSENT)) if health else None
    return found if isinstance(found, str) else None
