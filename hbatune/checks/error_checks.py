"""Checks of errors: disk faults from counters, device states and the kernel log.

The kernel's sources of evidence:

- ``ioerr_cnt`` counts every command with a status other than good (drivers/scsi/scsi_lib.c:
  scsi_complete). It includes failed commands, but also pass-through that succeeded or that the
  drive refused (each poll of smartd), unit attentions and full queues. Without other evidence it
  proves nothing.
- ``iotmo_cnt`` counts all commands that got no answer in time.
- The kernel log has a line for each I/O that failed for good, and no line for pass-through. The
  SCSI layer's preceding lines distinguish medium, hardware and transport errors
  (``facts/kernel_log.py``).
- A full queue lowers queue_depth with some drivers (``depth_checks.find_lowered_depths``).
- Fibre Channel links, SAS links and PCI Express have separate counters, which start long before the
  first check. They are evidence if they rise.
- A device's state shows whether the kernel took it offline.
"""

from collections.abc import Iterator
from typing import ClassVar

from msgspec import UNSET, UnsetType

from hbatune.checks.finding import Check, CheckEvidence, CheckInput, Finding, Severity
from hbatune.facts import health
from hbatune.facts.health import LOG_COUNTER_PREFIX, ErrorKind, is_evidence
from hbatune.facts.model import Adapter, Endpoint, Protocol

MAX_PROBE_ERRORS = 32
"""Commands without good status up to this number come from probing a drive's features."""

_CABLED = frozenset({Protocol.SAS, Protocol.SATA, Protocol.SPI, Protocol.NVME})
_FABRIC = frozenset({Protocol.FC, Protocol.ISCSI})

# drivers/scsi/scsi_sysfs.c: sdev_states; drivers/nvme/host/core.c: nvme_sysfs_show_state
_GIVEN_UP = frozenset({"offline", "transport-offline", "dead"})


class _FailedIo(CheckEvidence, frozen=True):
    """The failed I/O in the kernel log of the types ``FAULTS``, which one check reports.

    A fault is known if an earlier snapshot counted it and its count has not risen since.
    """

    FAULTS: ClassVar[tuple[ErrorKind, ...]]
    NEW: ClassVar[Severity] = Severity.WARNING
    KNOWN: ClassVar[Severity] = Severity.INFO
    count: int
    kinds: tuple[str, ...]
    resets: int | None
    drive: str | None
    volume: str | None
    cabled: str | None
    fabric: str | None


class _MediumErrors(_FailedIo, frozen=True):
    FAULTS = (ErrorKind.MEDIUM, ErrorKind.HARDWARE, ErrorKind.PROTECTION)
    # Unreadable sectors stay unreadable, so a known fault is still serious.
    NEW, KNOWN = Severity.CRITICAL, Severity.WARNING


class _SpaceErrors(_FailedIo, frozen=True):
    FAULTS = (ErrorKind.SPACE,)
    NEW, KNOWN = Severity.CRITICAL, Severity.WARNING


class _TransportErrors(_FailedIo, frozen=True):
    FAULTS = (ErrorKind.TRANSPORT,)


class _UnexplainedIo(_FailedIo, frozen=True):
    FAULTS = (ErrorKind.OTHER,)


_EVIDENCE_BY_CHECK: dict[str, type[_FailedIo]] = {
    "medium-errors": _MediumErrors,
    "transport-errors": _TransportErrors,
    "space-errors": _SpaceErrors,
    "io-errors": _UnexplainedIo,
}


def find_logged(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find disks whose I/O failed for good in the kernel log, for the error types of the check."""
    evidence_type = _EVIDENCE_BY_CHECK[check.id]
    for endpoint in inputs.endpoints:
        disk = inputs.health.disks.get(endpoint.target)
        kinds = [fault for fault in evidence_type.FAULTS if disk and disk.logged.get(fault)]
        if disk is None or not kinds:
            continue
        is_known = inputs.is_over(endpoint.id, [f"{LOG_COUNTER_PREFIX}{kind}" for kind in kinds])
        target, protocol = endpoint.target, endpoint.protocol
        evidence = evidence_type(
            count=sum(disk.logged[fault] for fault in kinds),
            kinds=tuple(kinds),
            resets=disk.logged.get(ErrorKind.RESET) or None,
            drive=None if protocol is Protocol.VOLUME else target,
            volume=target if protocol is Protocol.VOLUME else None,
            cabled=target if protocol in _CABLED else None,
            fabric=target if protocol in _FABRIC else None,
        )
        severity = evidence.KNOWN if is_known else evidence.NEW
        yield check.report(severity, endpoint, evidence)


class _Timeouts(CheckEvidence, frozen=True):
    timeouts: int
    done: int | None
    denied: str | UnsetType


def find_timeouts(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find disks with timed-out commands, from the SCSI layer's counter or the kernel log."""
    for endpoint in inputs.endpoints:
        disk = inputs.health.disks.get(endpoint.target)
        counted = _as_count(disk.timeouts) if disk else None
        logged = disk.logged.get(ErrorKind.TIMEOUT, 0) if disk else 0
        if disk is None or not (counted or logged):
            continue
        name = "timeouts" if counted else f"{LOG_COUNTER_PREFIX}{ErrorKind.TIMEOUT}"
        severity = Severity.INFO if inputs.is_over(endpoint.id, [name]) else Severity.WARNING
        done = _as_count(disk.done) if counted else None
        evidence = _Timeouts(counted or logged, done, inputs.denied_log)
        yield check.report(severity, endpoint, evidence)


class _UnexplainedErrors(CheckEvidence, frozen=True):
    errors: int
    done: int | None
    denied: str | None


def find_unexplained(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find disks with an error count that only the kernel log could explain.

    If the log was read, it shows the failures. If not, the count proves no fault, and the finding
    is only informational.
    """
    if inputs.health.log is True:
        return
    for endpoint in inputs.endpoints:
        disk = inputs.health.disks.get(endpoint.target)
        if disk and isinstance(disk.errors, int) and disk.errors > MAX_PROBE_ERRORS:
            done, denied = _as_count(disk.done), inputs.denied_log or None
            evidence = _UnexplainedErrors(disk.errors, done, denied)
            yield check.report(Severity.INFO, endpoint, evidence)


class _RisingCounter(CheckEvidence, frozen=True):
    counter: str
    was: int
    now: int
    minutes: int
    disk: str | None
    card: str | None
    link: str | None
    denied: str | UnsetType


def find_rising_counters(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find error counters that have risen since the last check.

    Only counters that are evidence count. The log's counters are skipped: other checks report them.
    """
    current, previous = inputs.counted, inputs.earlier
    if current is None or previous is None:
        return
    targets: list[Endpoint | Adapter] = [*inputs.endpoints, *inputs.adapters]
    for target in targets:
        key = target.id if isinstance(target, Endpoint) else target.target
        for name, count in sorted(current.values.get(key, {}).items()):
            former = previous.value(key, name)
            if count < former:  # counted from 0 again: a new device of this name, or root's doing
                former = 0
            if count > former and is_evidence(name) and not name.startswith(LOG_COUNTER_PREFIX):
                is_disk, kind = isinstance(target, Endpoint), name.rpartition(" ")[2]
                is_of_bus = kind in health.BUS_COUNTERS
                evidence = _RisingCounter(
                    counter=name,
                    was=former,
                    now=count,
                    minutes=max(1, (current.at - previous.at) // 60),
                    disk=target.controller or target.target if is_disk else None,
                    card=target.target if is_of_bus else None,
                    link=None if is_disk or is_of_bus else name.partition(" ")[0],
                    denied=inputs.denied_log if is_disk else UNSET,
                )
                severity = Severity.WARNING if kind in health.SERIOUS_COUNTERS else Severity.ADVICE
                yield check.report(severity, target, evidence)


class _OfflineDevice(CheckEvidence, frozen=True):
    state: str
    disk: str | None
    controller: str | None
    denied: str | UnsetType


def find_given_up(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find offline devices, to which the kernel sends no commands."""
    for endpoint in inputs.endpoints:
        if endpoint.state in _GIVEN_UP:
            is_scsi = endpoint.address is not None
            evidence = _OfflineDevice(
                state=str(endpoint.state),
                disk=endpoint.target if is_scsi else None,
                controller=None if is_scsi else endpoint.controller,
                denied=UNSET if is_scsi else inputs.denied_log,
            )
            yield check.report(Severity.WARNING, endpoint, evidence)


def _as_count(value: object) -> int | None:
    return value if isinstance(value, int) else None
