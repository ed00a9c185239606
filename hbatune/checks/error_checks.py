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

from msgspec import Struct

from hbatune.checks.finding import (
    Check,
    CheckInput,
    Finding,
    Severity,
    is_denied,
    make_root_evidence,
)
from hbatune.facts.health import (
    BUS_COUNTERS,
    LOG_COUNTER_PREFIX,
    SERIOUS_COUNTERS,
    ErrorKind,
    is_evidence,
)
from hbatune.facts.model import Adapter, Endpoint, Protocol

MAX_PROBE_ERRORS = 32
"""Commands without good status up to this number come from probing a drive's features."""

_CABLED = frozenset({Protocol.SAS, Protocol.SATA, Protocol.SPI, Protocol.NVME})
_FABRIC = frozenset({Protocol.FC, Protocol.ISCSI})

# drivers/scsi/scsi_sysfs.c: sdev_states; drivers/nvme/host/core.c: nvme_sysfs_show_state
_GIVEN_UP = frozenset({"offline", "transport-offline", "dead"})


class Grade(Struct, frozen=True):
    """The faults that one check finds, and their severity: ``new`` and ``known`` faults.

    A fault is known if an earlier check counted it and its count has not risen since.
    """

    faults: tuple[ErrorKind, ...]
    new: Severity
    known: Severity


GRADES_BY_CHECK = {
    # Unreadable sectors stay unreadable, so a known fault is still serious.
    "medium-errors": Grade(
        (ErrorKind.MEDIUM, ErrorKind.HARDWARE, ErrorKind.PROTECTION),
        Severity.CRITICAL,
        Severity.WARNING,
    ),
    "transport-errors": Grade((ErrorKind.TRANSPORT,), Severity.WARNING, Severity.INFO),
    "space-errors": Grade((ErrorKind.SPACE,), Severity.CRITICAL, Severity.WARNING),
    "io-errors": Grade((ErrorKind.OTHER,), Severity.WARNING, Severity.INFO),
}
"""The checks of the kernel's log, by id."""


def find_logged(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find disks whose I/O failed for good in the kernel log, for the error types of the check."""
    grade = GRADES_BY_CHECK[check.id]
    for endpoint in inputs.endpoints:
        disk = inputs.of_disk(endpoint)
        kinds = [fault for fault in grade.faults if disk and disk.logged.get(fault)]
        if disk is None or not kinds:
            continue
        is_known = all(
            _is_known(inputs, endpoint, f"{LOG_COUNTER_PREFIX}{fault}") for fault in kinds
        )
        volume = endpoint.protocol is Protocol.VOLUME
        yield check.found(
            grade.known if is_known else grade.new,
            endpoint,
            count=sum(disk.logged[fault] for fault in kinds),
            kinds=tuple(kinds),
            resets=disk.logged.get(ErrorKind.RESET) or None,
            drive=None if volume else endpoint.target,
            volume=endpoint.target if volume else None,
            cabled=endpoint.target if endpoint.protocol in _CABLED else None,
            fabric=endpoint.target if endpoint.protocol in _FABRIC else None,
        )


def find_timeouts(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find disks with timed-out commands, from the SCSI layer's counter or the kernel log."""
    for endpoint in inputs.endpoints:
        disk = inputs.of_disk(endpoint)
        counted = _as_count(disk.timeouts) if disk else None
        logged = disk.logged.get(ErrorKind.TIMEOUT, 0) if disk else 0
        if disk is None or not (counted or logged):
            continue
        name = "timeouts" if counted else f"{LOG_COUNTER_PREFIX}{ErrorKind.TIMEOUT}"
        severity = Severity.INFO if _is_known(inputs, endpoint, name) else Severity.WARNING
        yield check.found(
            severity,
            endpoint,
            timeouts=counted or logged,
            done=_as_count(disk.done) if counted else None,
            **make_root_evidence(inputs),
        )


def find_unexplained(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find disks with an error count that only the kernel log could explain.

    If the log was read, it shows the failures. If not, the count proves no fault, and the finding
    is only informational.
    """
    if inputs.health.log is True:
        return
    for endpoint in inputs.endpoints:
        disk = inputs.of_disk(endpoint)
        if disk and isinstance(disk.errors, int) and disk.errors > MAX_PROBE_ERRORS:
            yield check.found(
                Severity.INFO,
                endpoint,
                errors=disk.errors,
                done=_as_count(disk.done),
                denied="log" if is_denied(inputs.health.log) else None,
            )


def find_rising_counters(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find error counters that have risen since the last check.

    Only counters that are evidence count. The log's counters are skipped: other checks report them.
    """
    current, previous = inputs.counted, inputs.earlier
    if current is None or previous is None:
        return
    targets: list[tuple[str, Endpoint | Adapter]] = [
        (endpoint.id, endpoint) for endpoint in inputs.endpoints
    ]
    targets += [(adapter.target, adapter) for adapter in inputs.adapters]
    for key, target in targets:
        for name, count in sorted(current.values.get(key, {}).items()):
            former = previous.value(key, name)
            if count > former and is_evidence(name) and not name.startswith(LOG_COUNTER_PREFIX):
                disk = isinstance(target, Endpoint)
                kind = name.rpartition(" ")[2]
                yield check.found(
                    Severity.WARNING if kind in SERIOUS_COUNTERS else Severity.ADVICE,
                    target,
                    counter=name,
                    was=former,
                    now=count,
                    minutes=max(1, (current.at - previous.at) // 60),
                    disk=target.target if disk else None,
                    card=target.target if kind in BUS_COUNTERS else None,
                    link=name.partition(" ")[0] if not disk and kind not in BUS_COUNTERS else None,
                    **(make_root_evidence(inputs) if disk else {}),
                )


def find_given_up(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find offline devices, to which the kernel sends no commands."""
    for endpoint in inputs.endpoints:
        if endpoint.state in _GIVEN_UP:
            is_scsi = endpoint.address is not None
            yield check.found(
                Severity.WARNING,
                endpoint,
                state=str(endpoint.state),
                disk=endpoint.target if is_scsi else None,
                controller=endpoint.controller if not is_scsi else None,
                **({} if is_scsi else make_root_evidence(inputs)),
            )


def _is_known(inputs: CheckInput, endpoint: Endpoint, name: str) -> bool:
    """Return whether a counter has not risen since the last check: its cause is over."""
    if inputs.counted is None or inputs.earlier is None:
        return False
    return inputs.counted.value(endpoint.id, name) <= inputs.earlier.value(endpoint.id, name)


def _as_count(value: object) -> int | None:
    return value if isinstance(value, int) else None
