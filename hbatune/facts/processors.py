"""Read the machine's CPUs: the online ones, their cores, and the settings that keep some free."""

import os
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import partial

from msgspec.structs import replace

from hbatune.facts import attributes, ids, names, services
from hbatune.facts.devices import list_names
from hbatune.facts.model import CpuRestriction, Machine, Processors

# Documentation/ABI/testing/sysfs-devices-system-cpu
_CPU = "/sys/devices/system/cpu"
_COMMAND_LINE = "/proc/cmdline"
# The kernel adds the CPU that it booted on (kernel/irq/irqdesc.c: irq_affinity_setup). The
# administrator did not name that CPU, so it is not added here.
_IRQAFFINITY = r"irqaffinity=(.*)"
# Flags precede the list (kernel/sched/isolation.c: housekeeping_isolcpus_setup).
_MANAGED_IRQ = r"isolcpus=(?:[a-z_]+,)*managed_irq,(?:[a-z_]+,)*(.*)"
_CGROUPS = "/sys/fs/cgroup"
_DEFAULT_AFFINITY = "/proc/irq/default_smp_affinity"


def read_processors() -> Processors:
    """Return the CPUs according to sysfs, procfs, irqbalance and TuneD."""
    daemons = services.find_services((services.IRQBALANCE, services.TUNED))
    irqbalance = services.parse_irqbalance(daemons[services.IRQBALANCE])
    online = read_cpu_list(f"{_CPU}/online")
    possible = read_cpu_list(f"{_CPU}/possible") or online
    siblings = {
        read_cpu_list(f"{_CPU}/cpu{cpu}/topology/thread_siblings_list") or (cpu,) for cpu in online
    }
    return Processors(
        online=online,
        isolated=read_cpu_list(f"{_CPU}/isolated"),
        nohz_full=read_cpu_list(f"{_CPU}/nohz_full"),
        cores=tuple(sorted(siblings)),
        irqaffinity=_find_given_cpus(_IRQAFFINITY, possible),
        balanced=_list_balanced(services.read_irqbalance_settings(irqbalance), online),
        restrictions=_read_restrictions(online, possible, with_tuned=bool(daemons[services.TUNED])),
        balancing=isinstance(irqbalance, services.Irqbalance),
    )


# pci= takes several options (Documentation/admin-guide/kernel-parameters.txt).
MSI_OFF = r"pci=(?:\S*,)?nomsi(?:,\S*)?"
ELEVATOR = r"elevator=.*"  # ignored by the kernel (block/elevator.c: elevator_setup)


def find_kernel_option(pattern: str) -> str | None:
    """Return the first option of the kernel's command line that matches, or None."""
    for option in _list_kernel_options():
        if re.fullmatch(pattern, option):
            return ids.escape_text(option)
    return None


def read_command_line() -> str:
    """Return the kernel's command line, or an empty text if it cannot be read."""
    return attributes.read_text(_COMMAND_LINE)


def _find_given_cpus(pattern: str, possible: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the CPUs of the last matching option, or None. If they make no sense, return none."""
    for option in reversed(_list_kernel_options()):
        if parts := re.fullmatch(pattern, option):
            parse = partial(names.parse_given_cpus, last=max(possible, default=0))
            return names.find_cpus(parts[1], parse) or ()
    return None


def _read_restrictions(
    online: tuple[int, ...], possible: tuple[int, ...], *, with_tuned: bool
) -> dict[CpuRestriction, tuple[int, ...]]:
    """Return the online CPUs that each restriction leaves for interrupts, or none if unknown."""
    partitions = f"{_CGROUPS}/cpuset.cpus.isolated"
    is_listed = os.path.exists(partitions)
    partitioned = read_cpu_list(partitions) if is_listed else _list_partitioned(_CGROUPS)
    excluded: dict[CpuRestriction, Collection[int] | None] = {
        CpuRestriction.MANAGED_IRQ: _find_given_cpus(_MANAGED_IRQ, possible),
        CpuRestriction.PARTITION: partitioned or None,
    }
    if with_tuned or services.TUNED_PROFILE.exists():
        from hbatune.facts import tuned  # few hosts have TuneD

        if with_tuned or tuned.is_one_shot():
            files = [f"{_CPU}/cpu{cpu}/topology/package_cpus_list" for cpu in online]
            sockets = set(map(read_cpu_list, files))
            excluded[CpuRestriction.TUNED] = tuned.read_isolated_cores(sockets)
    restrictions: dict[CpuRestriction, tuple[int, ...]] = {}
    for restriction, cpus in excluded.items():
        if cpus is not None:
            restrictions[restriction] = tuple(cpu for cpu in online if cpus and cpu not in cpus)
    if text := attributes.read_text(_DEFAULT_AFFINITY):
        default = frozenset(names.find_cpus(text, names.parse_mask) or ())
        restrictions[CpuRestriction.DEFAULT] = tuple(cpu for cpu in online if cpu in default)
    return restrictions


def _list_partitioned(group: str) -> set[int]:
    """Return the CPUs of the isolated partitions below a cgroup, for older kernels.

    The parent of a partition is a partition or the root there, so no group below other groups is
    read (Documentation/admin-guide/cgroup-v2.rst: cpuset.cpus.partition).
    """
    cpus: set[int] = set()
    if "cpuset" in attributes.read_text(f"{group}/cgroup.subtree_control").split():
        for name in list_names(group):
            partition = attributes.read_text(f"{group}/{name}/cpuset.cpus.partition").strip()
            if partition == "isolated":
                cpus.update(read_cpu_list(f"{group}/{name}/cpuset.cpus.effective"))
            if partition in ("isolated", "root"):
                cpus.update(_list_partitioned(f"{group}/{name}"))
    return cpus


def _list_kernel_options() -> list[str]:
    """Return the options up to ``--``: the remaining ones are for init."""
    command_line = read_command_line()
    options = command_line.split()
    if set(command_line) & {"'", '"', "\\"}:
        import shlex  # few command lines have quotes

        with suppress(ValueError):  # an unbalanced quote
            options = shlex.split(command_line)
    return options[: options.index("--")] if "--" in options else options


def _list_balanced(settings: Mapping[str, str], online: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the CPUs that irqbalance's settings do not ban.

    Version 1.9.2 uses only IRQBALANCE_BANNED_CPULIST. Earlier versions use IRQBALANCE_BANNED_CPUS,
    a mask, if there is no list (cputree.c: setup_banned_cpus). An administrator means both.
    """
    text = settings.get("IRQBALANCE_BANNED_CPULIST", "").strip()
    mask = settings.get("IRQBALANCE_BANNED_CPUS", "").strip()
    if not text and not mask:
        return None
    banned = names.find_cpus(text) if text else names.find_cpus(mask, names.parse_mask)
    return () if banned is None else tuple(cpu for cpu in online if cpu not in banned)


def read_cpu_list(path: str) -> tuple[int, ...]:
    """Return the CPUs that a file lists, or none if it cannot be read or parsed."""
    return names.find_cpus(attributes.read_text(path)) or ()


def with_probing(machine: Machine, *, isolated: bool) -> Machine:
    """Return the machine with its isolated CPUs given to probes, if so configured (D0-13)."""
    processors = machine.processors
    probing = tuple(cpu for cpu in processors.isolated if isolated and cpu in processors.online)
    return replace(machine, processors=replace(processors, probing=probing))
