"""Find the processes of the machine's services, and read the settings of irqbalance.

Any user can run a process with any name, and a container can run the same daemon. Such a process is
ignored. The kernel gives the proof: all user ids are 0, the process has one number, and its cgroup
is the cgroup of the system's unit. A mount namespace proves nothing: a unit may have a private one.
A process of root in another cgroup, which an administrator may have started, is unknown.
"""

import ctypes
import os
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from hbatune import loader
from hbatune.facts import devices, ids
from hbatune.facts.model import Missing, MissingText, Reason

_PROC = Path("/proc")
_NAME_BYTES = 64
_FILE_BYTES = 1 << 20
_ROOT = {"0"}
_ENDED = (FileNotFoundError, ProcessLookupError)

HIDDEN_PROCESSES = Missing(Reason.UNREADABLE, text=MissingText.HIDDEN_PROCESSES)


class ProvenService(Struct, frozen=True):
    """A process that is proven to belong to a service. An unreadable ``environment`` is None."""

    pid: int
    arguments: tuple[str, ...]
    environment: tuple[str, ...] | None


Service = ProvenService | Missing | None


def find_services(names: Collection[str], proc: Path = _PROC) -> dict[str, Service]:
    """Return the process of each service, None if none runs, or Missing if that is unknown."""
    services: dict[str, Service] = dict.fromkeys(names)
    try:
        pids = sorted(map(int, filter(str.isdecimal, os.listdir(proc))))
    except OSError as error:
        return dict.fromkeys(names, Missing(Reason.UNREADABLE, error.errno, error.strerror))
    # With hidepid= (proc(5)) or under a security module some processes cannot be seen.
    hidden = 1 not in pids
    for pid in pids:
        try:
            name = _read_file(f"{proc}/{pid}/comm", limit=_NAME_BYTES).strip()
            if name in services and not isinstance(services[name], ProvenService):
                services[name] = _identify(f"{proc}/{pid}", pid, name) or services[name]
        except _ENDED:
            continue
        except OSError:
            hidden = True
    if hidden:
        services = {name: service or HIDDEN_PROCESSES for name, service in services.items()}
    return services


def _identify(path: str, pid: int, name: str) -> Service:
    """Return the process if it is proven, Missing if it is unproven, None if it cannot be it.

    Arguments and environment are read only after the proof. Such a read can block indefinitely if
    the process is another user's: on a page that its file system does not deliver.
    """
    # The open directory stays with this process, even if the kernel uses its number again.
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    with loader.close_on_exit(os.open(path, flags)) as directory:
        status = {}
        for line in _read_file("status", directory).splitlines():
            key, _, value = line.partition(":")
            status[key] = value.split()
        # A process of another user cannot move interrupts. One with more than one number is in a
        # PID namespace below this one, which is a container's (fs/proc/array.c: task_state).
        if set(status.get("Uid", ())) != _ROOT or len(status.get("NSpid", ())) != 1:
            return None
        unit = f"{name}.service"
        if not any(_is_unit(line, unit) for line in _read_file("cgroup", directory).splitlines()):
            return Missing(Reason.UNPARSABLE, text=MissingText.OTHER_UNIT.format(pid, unit))
        arguments = tuple(_read_file("cmdline", directory).split("\0"))
        environment = None
        with suppress(PermissionError):  # ptrace(2), ptrace access mode checking
            environment = tuple(_read_file("environ", directory).split("\0"))
        return ProvenService(pid, arguments, environment)


def _read_file(name: str, directory: int | None = None, *, limit: int = _FILE_BYTES) -> str:
    """Return the beginning of a file. Without pathlib, because a server has many processes."""
    opened = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
    with loader.close_on_exit(opened) as descriptor:
        return loader.read_beginning(descriptor, limit).decode(errors="replace")


def _is_unit(line: str, unit: str) -> bool:
    """Return whether a line of /proc/PID/cgroup names the cgroup of this system unit.

    systemd's hierarchy is ``0::`` (version 2) or ``name=systemd`` (version 1). Only slices contain
    a system unit. A unit of a user's systemd is below ``user@UID.service``, and a container's is
    below a scope, a service or another directory.
    """
    _, controllers, path = line.split(":", 2) if line.count(":") > 1 else ("", "?", "")
    *parents, last = path.removeprefix("/").split("/")
    return (
        controllers in ("", "name=systemd")
        and last == unit
        and all(parent.endswith(".slice") for parent in parents)
    )


IONICE = "ionice"
_CGROUPS = Path("/sys/fs/cgroup")
_COST_MODEL = "io.cost.qos"  # enabled for a disk, it uses the weights (block/blk-iocost.c)
_WEIGHTS = ("io.bfq.weight", "io.weight")
_DEFAULT_WEIGHT = "100"  # include/linux/blk-cgroup.h: CGROUP_WEIGHT_DFL
# The number of ioprio_get(2); other architectures have 31 (include/uapi/asm-generic/unistd.h).
_IOPRIO_GET = {"x86_64": 252, "ppc64le": 274, "s390x": 283}.get(os.uname().machine, 31)
_WHO_PROCESS, _CLASS_SHIFT = 1, 13  # include/uapi/linux/ioprio.h
_LIBC = ctypes.CDLL(None)


def find_io_shares(cgroups: Path = _CGROUPS, proc: Path = _PROC) -> dict[str, tuple[str, ...]]:
    """Return the units with I/O weights, by cgroup file, and with I/O priorities, by ``IONICE``.

    systemd writes IOWeight= to these files. If the cost model is enabled, it uses the weights, and
    none is returned. A process without its own priority has class 0 (block/ioprio.c:
    get_task_raw_ioprio).
    """
    units: dict[str, set[str]] = {}
    weights_files: tuple[str, ...] = _WEIGHTS
    with suppress(OSError):
        if "enable=1" in _read_file(f"{cgroups}/{_COST_MODEL}"):
            weights_files = ()
    for pid in filter(str.isdecimal, devices.list_names(str(proc))):
        # The class is -1 if the process has ended.
        if _LIBC.syscall(_IOPRIO_GET, _WHO_PROCESS, int(pid)) >> _CLASS_SHIFT > 0:
            with suppress(OSError):
                unit = _read_file(f"{proc}/{pid}/cgroup").strip().rpartition("/")[2]
                if unit:  # kernel threads belong to no unit
                    units.setdefault(IONICE, set()).add(unit)
    for directory, _, files in os.walk(cgroups):
        for name in filter(files.__contains__, weights_files):
            with suppress(OSError):
                weights = filter(str.isdecimal, _read_file(f"{directory}/{name}").split())
                if set(weights) - {_DEFAULT_WEIGHT}:
                    units.setdefault(name, set()).add(os.path.basename(directory))
    return {share: tuple(sorted(map(ids.escape_text, names))) for share, names in units.items()}


TUNED = "tuned"
TUNED_PROFILE = Path("/etc/tuned/active_profile")
"""The names of tuned's active profile; the file stays after tuned has exited."""
IRQBALANCE = "irqbalance"
_PREFIX = "IRQBALANCE_"
# EnvironmentFile= of irqbalance's unit, on Debian and on Red Hat.
_FILES = ("/etc/default/irqbalance", "/etc/sysconfig/irqbalance")
_POLICY_OPTIONS = ("--policyscript", "-l")


class Irqbalance(Struct, frozen=True):
    """The running irqbalance, which moves interrupts every ten seconds."""

    pid: int
    policy: str | None  # the script, or the directory of scripts, that its arguments name
    settings: dict[str, str] | None = None  # of its environment, if this user may read that

    @property
    def scripts(self) -> tuple[Path, ...]:
        """The scripts that it runs, without links; none if its policy cannot be resolved."""
        # A relative path begins at irqbalance's working directory.
        if self.policy is None or not os.path.isabs(self.policy):
            return ()
        try:
            paths = [os.path.join(self.policy, name) for name in sorted(os.listdir(self.policy))]
        except (FileNotFoundError, NotADirectoryError):
            paths = [self.policy]
        except (OSError, ValueError):  # a loop of links; a name that this locale cannot encode
            return ()
        return tuple(Path(os.path.realpath(path)) for path in paths)

    def asks(self, script: Path) -> bool:
        """Return whether it runs this script, directly or from its directory of scripts."""
        return Path(os.path.realpath(script)) in self.scripts


def find_irqbalance() -> Irqbalance | Missing | None:
    """Return the machine's irqbalance, None if none runs, or Missing if that is unknown."""
    return parse_irqbalance(find_services([IRQBALANCE])[IRQBALANCE])


def parse_irqbalance(service: Service) -> Irqbalance | Missing | None:
    """Return the settings of the process of irqbalance.service."""
    if not isinstance(service, ProvenService):
        return service
    settings = None if service.environment is None else _parse_settings(service.environment)
    return Irqbalance(service.pid, _find_policy_script(service.arguments), settings)


def read_irqbalance_settings(
    irqbalance: Irqbalance | Missing | None, files: Iterable[Path] = tuple(map(Path, _FILES))
) -> dict[str, str]:
    """Return the settings of the running irqbalance, or else of its configuration file."""
    # Its environment comes first: the file may have been edited since it was started.
    if isinstance(irqbalance, Irqbalance) and irqbalance.settings is not None:
        return irqbalance.settings
    for file in files:
        with suppress(OSError):
            return _parse_settings(file.read_text(errors="replace").splitlines())
    return {}


def _parse_settings(lines: Iterable[str]) -> dict[str, str]:
    """Return names and values of lines such as ``NAME="value"``; other lines are ignored."""
    settings = {}
    for line in lines:
        name, equals, value = line.strip().partition("=")
        if equals and name.startswith(_PREFIX):
            settings[name] = value.strip().strip("\"'")
    return settings


def _find_policy_script(arguments: Sequence[str]) -> str | None:
    """Return the last policy that the arguments name, as getopt_long(3) reads them."""
    policy = None
    for argument, following in zip(arguments, (*arguments[1:], ""), strict=True):
        option, equals, value = argument.partition("=")
        if argument in _POLICY_OPTIONS:
            policy = following
        elif option == _POLICY_OPTIONS[0] and equals:
            policy = value
        elif argument.startswith("-l"):
            policy = argument[2:]
    return policy
