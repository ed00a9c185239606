"""The machine's CPUs: which are online, which are kept free of interrupts, which share a core."""

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from hbatune.facts import names
from hbatune.facts.model import Machine, Processors
from hbatune.facts.services import irqbalance_settings, running_irqbalance

_CPU = "/sys/devices/system/cpu"
_COMMAND_LINE = Path("/proc/cmdline")
_IRQAFFINITY = "irqaffinity="
_NO_MSI = r"pci=(?:\S*,)?nomsi(?:,\S*)?"


def processors() -> Processors:
    """Return the CPUs as sysfs, the kernel's command line and irqbalance's settings show them.

    Documentation/ABI/testing/sysfs-devices-system-cpu describes the files.
    """
    online = read_list(f"{_CPU}/online")
    cores = {_siblings(cpu) for cpu in online}
    return Processors(
        online=online,
        isolated=read_list(f"{_CPU}/isolated"),
        nohz_full=read_list(f"{_CPU}/nohz_full"),
        cores=tuple(sorted(cores)),
        irqaffinity=_irqaffinity(command_line(), read_list(f"{_CPU}/possible") or online),
        balanced=_balanced(irqbalance_settings(running_irqbalance()), online),
    )


def msi_off() -> str | None:
    """Return the word of the kernel's command line that switches MSI off, None without one.

    Documentation/admin-guide/kernel-parameters.txt: ``pci=`` takes several options.
    """
    words = _words(command_line())
    own = words[: words.index("--")] if "--" in words else words
    return next((word for word in own if "nomsi" in word and re.fullmatch(_NO_MSI, word)), None)


def command_line() -> str:
    """Return the kernel's command line, empty where it cannot be read."""
    try:
        return _COMMAND_LINE.read_text(errors="replace")
    except OSError:
        return ""


def _irqaffinity(command_line: str, possible: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the CPUs that ``irqaffinity=`` names; the last one counts.

    The kernel adds the CPU that it booted on, so that there is always one (kernel/irq/irqdesc.c:
    irq_affinity_setup); it is left out here, since the administrator did not name it.
    """
    found = None
    for word in _words(command_line):
        if word == "--":  # the rest is for init
            break
        if word.startswith(_IRQAFFINITY):
            found = word.removeprefix(_IRQAFFINITY)
    if found is None:
        return None
    try:
        return names.parse_given_cpus(found, max(possible, default=0))
    except ValueError:
        return ()


def _words(command_line: str) -> list[str]:
    if not set(command_line) & {"'", '"', "\\"}:
        return command_line.split()
    import shlex  # few command lines quote anything

    try:
        return shlex.split(command_line)
    except ValueError:  # an unbalanced quote
        return command_line.split()


def _balanced(said: Mapping[str, str], online: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the CPUs that irqbalance's settings do not ban.

    Version 1.9.2 heeds IRQBALANCE_BANNED_CPULIST alone; earlier ones heed IRQBALANCE_BANNED_CPUS, a
    mask, where there is no list (cputree.c: setup_banned_cpus). An administrator means both.
    """
    text = said.get("IRQBALANCE_BANNED_CPULIST", "").strip()
    mask = said.get("IRQBALANCE_BANNED_CPUS", "").strip()
    if not text and not mask:
        return None
    try:
        banned = names.parse_cpus(text) if text else names.parse_mask(mask)
    except ValueError:
        return ()
    return tuple(cpu for cpu in online if cpu not in banned)


def read_list(path: str) -> tuple[int, ...]:
    """Return the CPUs that a file lists; none if it cannot be read or makes no sense."""
    with suppress(OSError, ValueError), open(path, encoding="utf-8") as file:
        return names.parse_cpus(file.read())
    return ()


def _siblings(cpu: int) -> tuple[int, ...]:
    return read_list(f"{_CPU}/cpu{cpu}/topology/thread_siblings_list") or (cpu,)


def with_probing(machine: Machine, *, isolated: bool) -> Machine:
    """Return the machine with its isolated CPUs given to probes, if the site does so (D0-13)."""
    own = machine.processors
    given = tuple(cpu for cpu in own.isolated if cpu in own.online) if isolated else ()
    return replace(machine, processors=replace(own, probing=given))
