"""The machine's irqbalance: its banned CPUs and the policy scripts that it runs.

It moves interrupts every ten seconds, as its settings and its policy scripts specify. Only the
process of irqbalance.service counts (``facts.services``).
"""

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from hbatune.facts.model import Missing
from hbatune.facts.services import Service, find_services

NAME = "irqbalance"
_PREFIX = "IRQBALANCE_"
_FILES = ("/etc/default/irqbalance", "/etc/sysconfig/irqbalance")
"""EnvironmentFile= of irqbalance's unit, on Debian and on Red Hat."""
_OPTIONS = ("--policyscript", "-l")


class Irqbalance(Struct, frozen=True):
    """The running irqbalance.

    ``policy`` is the script, or the directory of scripts, that its arguments name. ``settings`` are
    the settings in its environment, or None if this user may not read them.
    """

    pid: int
    policy: str | None
    settings: dict[str, str] | None = None

    @property
    def scripts(self) -> tuple[Path, ...]:
        """The scripts that it runs, without links; none if its policy cannot be resolved.

        A relative path is not resolved, because it begins at irqbalance's working directory.
        """
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
        """Whether it runs this script, directly or from its directory of scripts."""
        return Path(os.path.realpath(script)) in self.scripts


def running_irqbalance() -> Irqbalance | Missing | None:
    """Return the machine's irqbalance, None if none runs, or Missing if that is unknown."""
    return irqbalance_of(find_services([NAME])[NAME])


def irqbalance_of(service: Service | Missing | None) -> Irqbalance | Missing | None:
    """Return the settings of the process of irqbalance.service."""
    if not isinstance(service, Service):
        return service
    settings = None if service.environment is None else _settings(service.environment)
    return Irqbalance(service.pid, _policy_script(service.arguments), settings)


def irqbalance_settings(
    irqbalance: Irqbalance | Missing | None, files: Iterable[Path] = tuple(map(Path, _FILES))
) -> dict[str, str]:
    """Return the settings of the running irqbalance, or of its configuration file.

    The file counts if irqbalance does not run, is unproven, or hides its environment.
    """
    # Its environment comes first: the file may have been edited since it was started.
    if isinstance(irqbalance, Irqbalance) and irqbalance.settings is not None:
        return irqbalance.settings
    for file in files:
        with suppress(OSError):
            return _settings(file.read_text(errors="replace").splitlines())
    return {}


def _settings(lines: Iterable[str]) -> dict[str, str]:
    """Return names and values of lines such as ``NAME="value"``; other lines are ignored."""
    pairs = (line.strip().partition("=") for line in lines)
    return {
        name: value.strip().strip("\"'")
        for name, equals, value in pairs
        if equals and name.startswith(_PREFIX)
    }


def _policy_script(arguments: Sequence[str]) -> str | None:
    """Return the last policy that the arguments name, as getopt_long(3) reads them."""
    policy = None
    for argument, following in zip(arguments, (*arguments[1:], ""), strict=True):
        option, equals, value = argument.partition("=")
        if argument in _OPTIONS:
            policy = following
        elif option == _OPTIONS[0] and equals:
            policy = value
        elif argument.startswith("-l"):
            policy = argument[2:]
    return policy
