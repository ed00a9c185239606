"""Forecast the changes of a host's storage by another kernel, before the reboot."""

from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from hbatune.facts.installed_modules import (
    InstalledModules,
    find_installed_release,
    read_installed_modules,
)
from hbatune.facts.model import Machine
from hbatune.operations.context import Context
from hbatune.operations.situation import SituationRequest, read_situation
from hbatune.operations.snapshot import take_snapshot
from hbatune.plan.kernel_changes import KernelChange, find_series, forecast_changes
from hbatune.plan.rows import Row
from hbatune.snapshot.file import load_snapshot


class Forecast(Struct, frozen=True, kw_only=True):
    """The changes of a host from its ``kernel`` to the series ``then``.

    ``installed`` is the release of that series whose modules were read, or None. ``profile`` is the
    active profile, or None.
    """

    hostname: str
    kernel: str
    then: str
    installed: str | None
    profile: str | None
    changes: tuple[KernelChange, ...]


def forecast_host(context: Context, kernel: str, snapshot_file: Path | None) -> Forecast:
    """Return the forecast for this host, or for the host of a snapshot.

    Raises UsageError if the rules do not cover one of the kernels.
    """
    then = find_series(kernel)
    snapshot = take_snapshot(context) if snapshot_file is None else load_snapshot(snapshot_file)
    machine, policy = snapshot.machine, snapshot.policy
    find_series(machine.kernel, is_running=True)
    rows: tuple[Row, ...] = ()
    if policy.active is not None:
        rows = read_situation(SituationRequest(snapshot=snapshot)).plan().rows
    # The modules of this host tell nothing about the host of a snapshot.
    installed = None if snapshot_file else _read_modules(machine, then)
    return Forecast(
        hostname=machine.hostname,
        kernel=machine.kernel,
        then=then,
        installed=installed.release if installed else None,
        profile=policy.active,
        changes=forecast_changes(
            machine, then, rows=rows, rendered=policy.rendered, installed=installed
        ),
    )


def _read_modules(machine: Machine, series: str) -> InstalledModules | None:
    release = find_installed_release(series)
    if release is None or release == machine.kernel:
        return None
    return read_installed_modules(release, _list_drivers(machine))


def _list_drivers(machine: Machine) -> Iterable[str]:
    drivers: set[str] = set()
    for adapter in machine.adapters:
        if isinstance(adapter.driver, str):
            drivers.add(adapter.driver)
    return drivers | {"nvme_core"} if "nvme" in drivers else drivers
