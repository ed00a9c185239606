"""Forecast the changes of a host's storage by another kernel, before the reboot."""

import re
from pathlib import Path

from msgspec import Struct

from hbatune import children
from hbatune.facts import devices, model, names
from hbatune.operations.situation import SituationRequest, read_situation
from hbatune.operations.snapshot import ShowTraces, take_snapshot
from hbatune.plan import kernel_changes
from hbatune.plan.rows import Row
from hbatune.snapshot.file import load_snapshot

_MODULES = "/lib/modules"
_SECONDS = 10.0  # for each module; it takes milliseconds, unless the disk does not answer


class Forecast(Struct, frozen=True, kw_only=True):
    """The changes of a host from its ``kernel`` to the series ``then``.

    ``installed`` is the release of that series whose modules were read, or None.
    """

    hostname: str
    kernel: str
    then: str
    installed: str | None
    changes: tuple[kernel_changes.KernelChange, ...]


def forecast_host(show_traces: ShowTraces, kernel: str, snapshot_file: Path | None) -> Forecast:
    """Return the forecast for this host, or for the host of a snapshot.

    Raises UsageError if the rules do not cover one of the kernels.
    """
    then = kernel_changes.find_series(kernel)
    snapshot = take_snapshot(show_traces) if snapshot_file is None else load_snapshot(snapshot_file)
    machine, policy = snapshot.machine, snapshot.policy
    kernel_changes.find_series(machine.kernel, is_running=True)
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
        changes=kernel_changes.forecast_changes(
            machine, then, rows=rows, rendered=policy.rendered, installed=installed
        ),
    )


def _read_modules(machine: model.Machine, series: str) -> kernel_changes.InstalledModules | None:
    """Return the modules of the newest installed kernel of the series, if it does not run now.

    The options are from modinfo(8); None if it does not answer.
    """
    releases = filter(re.compile(rf"{re.escape(series)}\b").match, devices.list_names(_MODULES))
    release = max(releases, key=names.natural_key, default=machine.kernel)
    if release == machine.kernel:
        return None
    options: dict[str, frozenset[str]] = {}
    for driver in kernel_changes.list_modules(machine):
        try:
            done = children.run(("modinfo", "-k", release, "-F", "parm", driver), _SECONDS)
        except OSError:
            return None
        if done.returncode == 0:
            lines = done.stdout.decode("utf-8", "replace").splitlines()
            options[driver] = frozenset(line.partition(":")[0] for line in lines)
    return kernel_changes.InstalledModules(release, options)
