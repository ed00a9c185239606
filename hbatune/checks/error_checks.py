"""The error model: what counters, states and the kernel's log say went wrong on a disk.

What the kernel shows, and what it is evidence of:

- ``ioerr_cnt`` counts every command with a status other than good: failed ones, but also
  pass-through that succeeded or that the drive refused (each poll of smartd), unit attentions and
  full queues (drivers/scsi/scsi_lib.c: scsi_complete). Alone it is evidence of nothing.
- ``iotmo_cnt`` counts commands that had no answer in time, whatever they were.
- The kernel's log has a line for each I/O that failed for good, none for pass-through; the SCSI
  layer's lines before it tell medium, hardware and transport apart (``facts/kernel_log.py``).
- A full queue lowers queue_depth, on drivers that do that (``depth.find_lowered_depths``).
- The links of Fibre Channel and SAS, and PCI Express, have counters of their own, which start long
  before anybody looks: evidence where they rise.
- A device's state says whether the kernel has given it up.
"""

from collections.abc import Iterator

from msgspec import Struct

from hbatune.checks.finding import Check, CheckInput, Finding, Severity, denied, needs_root
from hbatune.facts.health import BUS, GRAVE, LOGGED, ErrorKind, is_evidence
from hbatune.facts.model import Adapter, Endpoint, Protocol

PROBES = 32
"""Commands without good status up to this number come from probing a drive's features."""

_CABLED = frozenset({Protocol.SAS, Protocol.SATA, Protocol.SPI, Protocol.NVME})
_FABRIC = frozenset({Protocol.FC, Protocol.ISCSI})

# drivers/scsi/scsi_sysfs.c: sdev_states; drivers/nvme/host/core.c: nvme_sysfs_show_state
_GIVEN_UP = frozenset({"offline", "transport-offline", "dead"})


class Grade(Struct, frozen=True):
    """The faults that one check looks for, and how much they matter: new ones, and known ones.

    Known are those that were there at an earlier look, and have not become more since.
    """

    faults: tuple[ErrorKind, ...]
    new: Severity
    known: Severity


GRADES = {
    # Sectors that cannot be read stay so: what is known is no better for it.
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


def find_logged(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find disks whose I/O failed for good, as the kernel's log says, for the check's kinds."""
    grade = GRADES[check.id]
    for endpoint in seen.endpoints:
        disk = seen.of_disk(endpoint)
        kinds = [fault for fault in grade.faults if disk and disk.logged.get(fault)]
        if disk is None or not kinds:
            continue
        known = all(_known_of(seen, endpoint, f"{LOGGED}{fault}") for fault in kinds)
        volume = endpoint.protocol is Protocol.VOLUME
        yield check.found(
            grade.known if known else grade.new,
            endpoint,
            count=sum(disk.logged[fault] for fault in kinds),
            kinds=tuple(kinds),
            resets=disk.logged.get(ErrorKind.RESET) or None,
            drive=None if volume else endpoint.target,
            volume=endpoint.target if volume else None,
            cabled=endpoint.target if endpoint.protocol in _CABLED else None,
            fabric=endpoint.target if endpoint.protocol in _FABRIC else None,
        )


def find_timeouts(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find disks on which commands timed out: by the SCSI layer's count, or by the log."""
    for endpoint in seen.endpoints:
        disk = seen.of_disk(endpoint)
        counted = _count(disk.timeouts) if disk else None
        logged = disk.logged.get(ErrorKind.TIMEOUT, 0) if disk else 0
        if disk is None or not (counted or logged):
            continue
        name = "timeouts" if counted else f"{LOGGED}{ErrorKind.TIMEOUT}"
        severity = Severity.INFO if _known_of(seen, endpoint, name) else Severity.WARNING
        yield check.found(
            severity,
            endpoint,
            timeouts=counted or logged,
            done=_count(disk.done) if counted else None,
            **needs_root(seen),
        )


def find_unexplained(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find disks with commands of which only the log could say whether they failed.

    Where the log was read it has the answer. Where it was not, the count alone is no reason to
    doubt a disk, and is only worth knowing.
    """
    if seen.health.log is True:
        return
    for endpoint in seen.endpoints:
        disk = seen.of_disk(endpoint)
        if disk and isinstance(disk.errors, int) and disk.errors > PROBES:
            yield check.found(
                Severity.INFO,
                endpoint,
                errors=disk.errors,
                done=_count(disk.done),
                denied="log" if denied(seen.health.log) else None,
            )


def find_rising_counters(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find counters of errors that have risen since the last check.

    Those alone that are evidence, and without the log's, which have findings of their own.
    """
    now, before = seen.counted, seen.earlier
    if now is None or before is None:
        return
    targets: list[tuple[str, Endpoint | Adapter]] = [
        (endpoint.id, endpoint) for endpoint in seen.endpoints
    ]
    targets += [(adapter.target, adapter) for adapter in seen.adapters]
    for key, target in targets:
        for name, count in sorted(now.values.get(key, {}).items()):
            was = before.value(key, name)
            if count > was and is_evidence(name) and not name.startswith(LOGGED):
                disk = isinstance(target, Endpoint)
                kind = name.rpartition(" ")[2]
                yield check.found(
                    Severity.WARNING if kind in GRAVE else Severity.ADVICE,
                    target,
                    counter=name,
                    was=was,
                    now=count,
                    minutes=max(1, (now.at - before.at) // 60),
                    disk=target.target if disk else None,
                    card=target.target if kind in BUS else None,
                    link=name.partition(" ")[0] if not disk and kind not in BUS else None,
                    **(needs_root(seen) if disk else {}),
                )


def find_given_up(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find devices that the kernel no longer sends commands to."""
    for endpoint in seen.endpoints:
        if endpoint.state in _GIVEN_UP:
            scsi = endpoint.address is not None
            yield check.found(
                Severity.WARNING,
                endpoint,
                state=str(endpoint.state),
                disk=endpoint.target if scsi else None,
                controller=endpoint.controller if not scsi else None,
                **({} if scsi else needs_root(seen)),
            )


def _known_of(seen: CheckInput, endpoint: Endpoint, name: str) -> bool:
    """Whether a counter has not risen since the last check: its cause is over."""
    if seen.counted is None or seen.earlier is None:
        return False
    return seen.counted.value(endpoint.id, name) <= seen.earlier.value(endpoint.id, name)


def _count(value: object) -> int | None:
    return value if isinstance(value, int) else None
