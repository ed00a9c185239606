"""Gathers the health of a machine for the checks; its adapters and endpoints are known already."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress

from hbatune.facts import bus, irqbalance, neighbours
from hbatune.facts.attributes import ABSENT, CONFIG, Attributes, integer, text
from hbatune.facts.families import family_named
from hbatune.facts.health import AdapterHealth, DiskHealth, Health, Mount
from hbatune.facts.ids import escape
from hbatune.facts.kernel_log import KernelLog, kernel_log
from hbatune.facts.model import Adapter, Endpoint, Machine, Missing
from hbatune.facts.processors import msi_off
from hbatune.facts.stack import mount_options
from hbatune.facts.survey import survey_each

_COUNTERS = ("device/iodone_cnt", "device/ioerr_cnt", "device/iotmo_cnt")
LINK_ERRORS = (
    "error_frames",
    "invalid_crc_count",
    "link_failure_count",
    "loss_of_signal_count",
    "loss_of_sync_count",
)
"""The error counters of a Fibre Channel link (drivers/scsi/scsi_transport_fc.c)."""

PHY_ERRORS = (
    "invalid_dword_count",
    "loss_of_dword_sync_count",
    "phy_reset_problem_count",
    "running_disparity_error_count",
)
"""The error counters of a SAS phy (drivers/scsi/scsi_transport_sas.c: sas_phy_linkerror_attr)."""

_PHYS = "/sys/class/sas_phy"
_UNSUPPORTED = (1 << 64) - 1  # (u64)-1: a driver that does not count

_WRITE_CACHE = "queue/write_cache"


def observe(
    machine: Machine, *, deadline: float = 10.0, avoid: Mapping[str, str] | None = None
) -> Health:
    """Read the health of the machine's adapters and endpoints, and find other tools.

    ``deadline`` is in seconds, for each device; ``avoid`` are the kernel names of block devices
    whose queue is known not to answer, with the reason.
    """
    ways = {each.target: bus.way(each.pci.address) for each in machine.adapters if each.pci}
    known = avoid or {}
    survey = survey_each(
        dict(_requests(machine, ways)),
        deadline=deadline,
        avoid={e.sysfs: known[e.target] for e in machine.endpoints if e.target in known},
    )
    # Only where no vector is in use does the question arise what the card could do.
    alone = [
        way[0] for way in ways.values() if isinstance(bus.vectors(survey.get(way[0], {})), Missing)
    ]
    offers = survey_each(dict.fromkeys(alone, (CONFIG,)), deadline=deadline) if alone else {}
    log = kernel_log()
    points = {point for endpoint in machine.endpoints for point in endpoint.mounts}
    return Health(
        adapters={
            a.target: _adapter(a, ways.get(a.target, ()), survey, offers) for a in machine.adapters
        },
        disks={e.target: _disk(e, survey.get(e.sysfs, {}), log) for e in machine.endpoints},
        mounts=tuple(Mount(point, options) for point, options in mount_options(points).items()),
        daemons=neighbours.daemons(),
        tools=neighbours.tools(),
        udev_rules=neighbours.udev_rules(),
        irq_policies=_irq_policies(),
        log=log if isinstance(log, Missing) else True,
        msi_off=msi_off(),
    )


def _irq_policies() -> tuple[str, ...]:
    """Return the scripts that a running irqbalance asks, none if their folder is root's alone."""
    with suppress(OSError):
        balancer = irqbalance.running()
        return tuple(escape(str(script)) for script in balancer.scripts) if balancer else ()
    return ()


def _requests(
    machine: Machine, ways: Mapping[str, tuple[str, ...]]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the attributes to read from each directory; folders that do not exist are left out."""
    for adapter in machine.adapters:
        family = family_named(adapter.family)
        for directory in ways.get(adapter.target, ()):
            yield directory, bus.FUNCTION
        folder = _parameters(adapter)
        if folder and os.path.isdir(folder):
            yield folder, tuple(option.name for option in family.options)
        for host in adapter.hosts:
            if family.credits:
                yield _host(host.name), family.credits
            if os.path.isdir(_statistics(host.name)):
                yield _statistics(host.name), LINK_ERRORS
            for phy in _phys(host.name):
                yield f"{_PHYS}/{phy}", PHY_ERRORS
    for endpoint in machine.endpoints:
        if endpoint.address:
            yield endpoint.sysfs, (*_COUNTERS, _cache_type(endpoint))
        else:
            yield endpoint.sysfs, (_WRITE_CACHE,)


def _adapter(
    adapter: Adapter,
    way: tuple[str, ...],
    survey: Mapping[str, Attributes],
    offers: Mapping[str, Attributes],
) -> AdapterHealth:
    family = family_named(adapter.family)
    function = survey.get(way[0], {}) if way else {}
    parameters = survey.get(_parameters(adapter) or "", {})
    above = way[1:]
    return AdapterHealth(
        errors=bus.errors(function) if way else None,
        port=bus.port(above[0], survey) if above else None,
        root=bus.root(above[-1], survey) if above else None,
        vectors=bus.vectors(function),
        options={option.name: _escaped(parameters, option.name) for option in family.options},
        credits={
            host.name: integer(survey.get(_host(host.name), {}), name)
            for host in adapter.hosts
            for name in family.credits
        },
        link_errors={
            f"{host.name} {name}": count
            for host in adapter.hosts
            if (found := survey.get(_statistics(host.name)))
            for name in LINK_ERRORS
            if (count := integer(found, name, 16)) != _UNSUPPORTED
        }
        | {
            f"{phy} {name}": integer(survey.get(f"{_PHYS}/{phy}", {}), name)
            for host in adapter.hosts
            for phy in _phys(host.name)
            for name in PHY_ERRORS
        },
        offers_msi=bus.offers_msi(offers.get(way[0], {})) if way else ABSENT,
    )


def _disk(endpoint: Endpoint, found: Attributes, log: KernelLog | Missing) -> DiskHealth:
    """Return the health of one endpoint.

    drivers/scsi/scsi_sysfs.c: show_iostat prints hexadecimal numbers; sd.c: cache_type_show.
    """
    done, errors, timeouts = (integer(found, name, 16) for name in _COUNTERS)
    cache = _cache_type(endpoint) if endpoint.address else _WRITE_CACHE
    return DiskHealth(
        cache=_escaped(found, cache),
        done=done,
        errors=errors,
        timeouts=timeouts,
        logged=(
            {}
            if isinstance(log, Missing)
            else log.of(endpoint.target, endpoint.address, endpoint.controller)
        ),
    )


def _cache_type(endpoint: Endpoint) -> str:
    return f"device/scsi_disk/{endpoint.address}/cache_type"


def _parameters(adapter: Adapter) -> str | None:
    if isinstance(adapter.driver, Missing):
        return None
    return f"/sys/module/{adapter.driver.replace('-', '_')}/parameters"


def _host(name: str) -> str:
    return f"/sys/class/scsi_host/{name}"


def _phys(host: str) -> tuple[str, ...]:
    """Return the phys of the adapter itself; those of expanders have three numbers."""
    own = re.compile(rf"phy-{host.removeprefix('host')}:\d+")
    with suppress(OSError):
        return tuple(sorted(name for name in os.listdir(_PHYS) if own.fullmatch(name)))
    return ()


def _statistics(name: str) -> str:
    return f"/sys/class/fc_host/{name}/statistics"


def _escaped(found: Attributes, name: str) -> str | Missing:
    value = text(found, name) if name in found else ABSENT
    return value if isinstance(value, Missing) else escape(value)
