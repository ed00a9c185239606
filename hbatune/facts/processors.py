"""Read the machine's CPUs: online and isolated ones, and their cores."""

import re
from collections.abc import Mapping
from contextlib import suppress

from msgspec.structs import replace

from hbatune.facts import names
from hbatune.facts.attributes import read_text
from hbatune.facts.ids import escape_text
from hbatune.facts.model import Machine, Processors
from hbatune.facts.services import find_irqbalance, read_irqbalance_settings

# Documentation/ABI/testing/sysfs-devices-system-cpu
_CPU = "/sys/devices/system/cpu"
_COMMAND_LINE = "/proc/cmdline"
_IRQAFFINITY = "irqaffinity="


def read_processors() -> Processors:
    """Return the CPUs according to sysfs, the kernel's command line and irqbalance's settings."""
    online = read_cpu_list(f"{_CPU}/online")
    siblings = {
        read_cpu_list(f"{_CPU}/cpu{cpu}/topology/thread_siblings_list") or (cpu,) for cpu in online
    }
    return Processors(
        online=online,
        isolated=read_cpu_list(f"{_CPU}/isolated"),
        nohz_full=read_cpu_list(f"{_CPU}/nohz_full"),
        cores=tuple(sorted(siblings)),
        irqaffinity=_find_irqaffinity(read_cpu_list(f"{_CPU}/possible") or online),
        balanced=_list_balanced(read_irqbalance_settings(find_irqbalance()), online),
    )


# pci= takes several options (Documentation/admin-guide/kernel-parameters.txt).
MSI_OFF = r"pci=(?:\S*,)?nomsi(?:,\S*)?"
ELEVATOR = r"elevator=.*"  # ignored by the kernel (block/elevator.c: elevator_setup)


def find_kernel_option(pattern: str) -> str | None:
    """Return the first option of the kernel's command line that matches, or None."""
    for option in _list_kernel_options():
        if re.fullmatch(pattern, option):
            return escape_text(option)
    return None


def read_command_line() -> str:
    """Return the kernel's command line, or an empty text if it cannot be read."""
    return read_text(_COMMAND_LINE)


def _find_irqaffinity(possible: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the CPUs that ``irqaffinity=`` names; the last option counts.

    The kernel adds the CPU that it booted on, so the list is never empty (kernel/irq/irqdesc.c:
    irq_affinity_setup). The administrator did not name that CPU, so it is omitted here.
    """
    for option in reversed(_list_kernel_options()):
        if option.startswith(_IRQAFFINITY):
            try:
                cpus = option.removeprefix(_IRQAFFINITY)
                return names.parse_given_cpus(cpus, max(possible, default=0))
            except ValueError:
                return ()
    return None


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
    try:
        banned = names.parse_cpus(text) if text else names.parse_mask(mask)
    except ValueError:
        return ()
    return tuple(cpu for cpu in online if cpu not in banned)


def read_cpu_list(path: str) -> tuple[int, ...]:
    """Return the CPUs that a file lists, or none if it cannot be read or parsed."""
    with suppress(OSError, ValueError), open(path, encoding="utf-8") as file:
        return names.parse_cpus(file.read())
    return ()


def with_probing(machine: Machine, *, isolated: bool) -> Machine:
    """Return the machine with its isolated CPUs given to probes, if so configured (D0-13)."""
    processors = machine.processors
    probing = tuple(cpu for cpu in processors.isolated if isolated and cpu in processors.online)
    return replace(machine, processors=replace(processors, probing=probing))
