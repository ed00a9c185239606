"""The machine's CPUs: which are online, which are kept free of interrupts, which share a core.

A running irqbalance keeps CPUs free as well: it moves interrupts every ten seconds, as its
settings and its policy scripts say.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from hbatune.facts import cpulist
from hbatune.facts.model import Machine, Processors

_PROC = Path("/proc")
_IRQBALANCE = "irqbalance"
_PREFIX = "IRQBALANCE_"
_FILES = ("/etc/default/irqbalance", "/etc/sysconfig/irqbalance")
"""EnvironmentFile= of irqbalance's unit, on Debian and on Red Hat."""
_OPTIONS = ("--policyscript", "-l")

_CPU = "/sys/devices/system/cpu"
_COMMAND_LINE = Path("/proc/cmdline")
_IRQAFFINITY = "irqaffinity="
_NO_MSI = r"pci=(?:\S*,)?nomsi(?:,\S*)?"


class Irqbalance(Struct, frozen=True):
    """A running irqbalance; ``policy`` is the script, or the folder of scripts, that it asks."""

    pid: int
    policy: str | None

    @property
    def scripts(self) -> tuple[Path, ...]:
        """The scripts that it asks, without links."""
        if self.policy is None:
            return ()
        folder = Path(self.policy)
        places = sorted(folder.iterdir()) if folder.is_dir() else [folder]
        return tuple(place.resolve() for place in places)

    def asks(self, script: Path) -> bool:
        """Whether this script is the one that it asks, or is in its folder of them."""
        return script.resolve() in self.scripts


def irqbalance_settings(
    proc: Path = _PROC, files: Iterable[Path] = tuple(map(Path, _FILES))
) -> dict[str, str]:
    """Return the settings in the environment of the running irqbalance, else those of its file.

    Users who may not see its environment get those of the file as well.
    """
    # Its environment comes first: the file may have been edited since it was started.
    there = running_irqbalance(proc)
    if there is not None:
        with suppress(OSError):
            said = (proc / str(there.pid) / "environ").read_bytes().decode(errors="replace")
            return _pairs(said.split("\0"))
    for file in files:
        with suppress(OSError):
            return _pairs(file.read_text(errors="replace").splitlines())
    return {}


def _pairs(lines: Iterable[str]) -> dict[str, str]:
    """Return names and values of lines such as ``NAME="value"``; other lines are ignored."""
    pairs = (line.strip().partition("=") for line in lines)
    return {
        name: value.strip().strip("\"'")
        for name, equals, value in pairs
        if equals and name.startswith(_PREFIX)
    }


def running_irqbalance(proc: Path = _PROC) -> Irqbalance | None:
    """Return the irqbalance that runs on this machine, None if there is none."""
    return next(_processes(proc), None)


def _processes(proc: Path) -> Iterator[Irqbalance]:
    for entry in sorted(filter(str.isdecimal, os.listdir(proc))):
        with suppress(OSError):  # a process may end between the listing and the read
            if _comm(f"{proc}/{entry}/comm") == _IRQBALANCE:
                words = (proc / entry / "cmdline").read_bytes().decode(errors="replace")
                yield Irqbalance(int(entry), _policy_script(words.split("\0")))


def _comm(path: str) -> str:
    """Return the name of a process: without pathlib, since a server has thousands of them."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, 64).decode(errors="replace").strip()
    finally:
        os.close(file)


def _policy_script(words: Sequence[str]) -> str | None:
    """Return the last policy that the words of a command name, as getopt_long(3) reads them."""
    found = None
    for word, following in zip(words, (*words[1:], ""), strict=True):
        option, equals, value = word.partition("=")
        if word in _OPTIONS:
            found = following
        elif option == _OPTIONS[0] and equals:
            found = value
        elif word.startswith("-l"):
            found = word[2:]
    return found


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
        balanced=_balanced(irqbalance_settings(), online),
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
        return cpulist.parse_given(found, max(possible, default=0))
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
        banned = cpulist.parse(text) if text else cpulist.parse_mask(mask)
    except ValueError:
        return ()
    return tuple(cpu for cpu in online if cpu not in banned)


def read_list(path: str) -> tuple[int, ...]:
    """Return the CPUs that a file lists; none if it cannot be read or makes no sense."""
    with suppress(OSError, ValueError), open(path, encoding="utf-8") as file:
        return cpulist.parse(file.read())
    return ()


def _siblings(cpu: int) -> tuple[int, ...]:
    return read_list(f"{_CPU}/cpu{cpu}/topology/thread_siblings_list") or (cpu,)


def with_probing(machine: Machine, *, isolated: bool) -> Machine:
    """Return the machine with its isolated CPUs given to probes, if the site does so (D0-13)."""
    own = machine.processors
    given = tuple(cpu for cpu in own.isolated if cpu in own.online) if isolated else ()
    return replace(machine, processors=replace(own, probing=given))
