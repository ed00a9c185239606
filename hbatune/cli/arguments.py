"""Arguments that several commands share, and checks that do not read the machine's state."""

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from hbatune.errors import HbatuneError, UsageError
from hbatune.text.basic_output import COLORS

if TYPE_CHECKING:
    import argparse  # imported in the functions below, because a daemon never needs it
    from typing import Any

    from hbatune.facts.devices import NamedStack

Parsed = TypeVar("Parsed", int, float)

GLOBAL_OPTIONS = "options of every command"
"""The title of the options that are accepted before and after the name of any command."""


def is_option(argument: str, *options: str) -> bool:
    """Return whether the argument is one of the options, or an abbreviation, without a value."""
    return argument in options or (
        len(argument) > 2 and any(option.startswith(argument) for option in options)
    )


def add_global_options(parser: "argparse.ArgumentParser", *, defaults: bool) -> None:
    """Add the options of every command; without ``defaults``, a missing one keeps its value."""
    import argparse

    default = None if defaults else argparse.SUPPRESS
    group = parser.add_argument_group(GLOBAL_OPTIONS, argument_default=default)
    group.add_argument("-h", "--help", action="help")
    group.add_argument("-H", "--host", metavar="USER@HOST")
    group.add_argument("--color", metavar="WHEN", choices=COLORS)
    group.add_argument("--quiet", action="store_true")


_FILE = {"metavar": "FILE", "type": Path}
_FORMS: "dict[str, Mapping[str, Any]]" = {
    "--file": {"metavar": "DIR", "type": Path},
    "--html": _FILE,
    "--metrics": _FILE,
    "--no-pager": {"action": "store_false", "dest": "pager"},
    "--profile": {"metavar": "P"},
    "--root": {"metavar": "DIR", "type": Path, "default": Path("/")},
    "--since": {"metavar": "OLD", "type": Path},
    "--snapshot": _FILE,
    "--trace": _FILE,
    "--watch": _FILE,
}
"""The forms of options with a value, and of options that are true unless they are given."""


def add_options(parser: "argparse._ActionsContainer", *options: str) -> None:
    """Add options, whose help is in templates/commands.toml. One without a form is a flag."""
    for option in options:
        parser.add_argument(option, **_FORMS.get(option, {"action": "store_true"}))


def add_targets(parser: "argparse.ArgumentParser", purpose: str) -> None:
    """Add the targets; without any, the command is for all targets."""
    purpose += ": a disk, a volume, a mount point, an NVMe controller, a PCI address, a SCSI host, "
    purpose += "an interrupt (irq27) or a stable id; without any, everything"
    parser.add_argument("targets", metavar="TARGET", nargs="*", help=purpose)


def resolve_targets(
    names: Iterable[str], args: "argparse.Namespace", *, shows_uses: bool
) -> list[str]:
    """Return the names, with the kernel names of the disks for each name of a disk or above disks.

    Messages report the disks and their other uses. UsageError for such a name if the command may
    destroy the data.
    """
    from hbatune.facts.devices import find_named_stack, find_other_uses
    from hbatune.text.plan_tables import fold_names
    from hbatune.text.terminal import print_note

    targets: list[str] = []
    for name in names:
        stack = find_named_stack(name)
        targets += stack.disks if stack else (name,)
        if not stack or not stack.layers:
            continue
        text = _describe_stack(stack)
        if getattr(args, "destructive", False):
            raise UsageError(text, hint="with --destructive, name the empty disk itself")
        if shows_uses or not args.json:
            print_note(text)
        if shows_uses and (uses := find_other_uses(stack)):
            text = ", ".join(fold_names(uses, count=False))
            print_note(f"the same disks also carry {text}")
    return targets


def _describe_stack(stack: "NamedStack") -> str:
    """Return a text such as ``/srv is on vg0/pg, on md127, on sda and sdb``."""
    from hbatune.facts.devices import read_label
    from hbatune.facts.names import shorten_names

    texts = []
    for layer in stack.layers:
        labels = []
        for kernel in layer:
            label = read_label(kernel)
            # Tables show a map by its kernel name.
            is_map = label != kernel and kernel in stack.disks
            labels.append(f"{label} ({kernel})" if is_map else label)
        texts.append(" and ".join(shorten_names(labels)))
    if stack.name.endswith(texts[0]):  # its own name
        del texts[0]
    return f"{stack.name} is on {', on '.join(texts)}"


def make_type(
    convert: Callable[[str], Parsed], is_valid: Callable[[Parsed], bool], wanted: str
) -> Callable[[str], Parsed]:
    """Return an argument type. ``convert`` raises ValueError for a text that is not ``wanted``."""

    def parse(text: str) -> Parsed:
        with suppress(ValueError):
            if is_valid(value := convert(text)):
                return value
        import argparse

        raise argparse.ArgumentTypeError(f"takes {wanted} and not {text!r}")

    return parse


def make_seconds_type(minimum: float = -math.inf) -> Callable[[str], float]:
    """Return an argument type: finite seconds, at least ``minimum``."""
    wanted = "a number of seconds" + (f", at least {minimum:g}," if math.isfinite(minimum) else "")
    return make_type(float, lambda value: math.isfinite(value) and value >= minimum, wanted)


def make_number_type(minimum: int, maximum: int | None = None) -> Callable[[str], int]:
    """Return an argument type: an integer from ``minimum`` to ``maximum`` if given."""
    wanted = f"at least {minimum}" if maximum is None else f"{minimum} to {maximum}"
    highest = math.inf if maximum is None else maximum
    return make_type(int, lambda value: minimum <= value <= highest, f"a whole number, {wanted},")


def make_size_type(maximum: int, unit: int = 512) -> Callable[[str], int]:
    """Return an argument type: a multiple of ``unit`` bytes, optionally with k, m or g."""

    def convert(text: str) -> int:
        match = re.fullmatch(r"([1-9][0-9]{0,8})([kmg]?)", text, re.ASCII | re.IGNORECASE)
        shifts = {"": 0, "k": 10, "m": 20, "g": 30}
        return int(match[1]) << shifts[match[2].lower()] if match else 0

    wanted = f"bytes, a multiple of {unit} with k, m or g, up to {maximum >> 20}m,"
    return make_type(convert, lambda size: size % unit == 0 and unit <= size <= maximum, wanted)


def resolve_root(root: Path) -> Path:
    """Return the root as an absolute path. UsageError if it is not a directory."""
    if not root.is_dir():
        raise UsageError(f"--root {str(root)!r} is not a directory")
    return root.resolve()


def require_root(command: str, does: str = "changes the machine") -> None:
    """Raise UsageError unless root runs it: only root may write settings and read the journal."""
    if os.geteuid() != 0:
        raise UsageError(f"`{command}` {does} and needs root", hint="run it with sudo")


def require_fio() -> None:
    """Raise HbatuneError without fio, before a command announces its runs."""
    from shutil import which  # heavy, and most commands run no fio

    if which("fio") is None:
        problem = "nothing was probed: fio is not installed"
        raise HbatuneError(problem, hint="install the package fio")


def save_named(path: Path, data: bytes, *, over: bool) -> None:
    """Write the user's file atomically; ``over`` replaces a regular file. Raises UsageError."""
    try:
        from hbatune.act import files  # most commands save nothing

        files.save(path, data, over=over)
    except FileExistsError as error:
        hint = None if over else "name another file, or --force to replace a regular one"
        problem = "is not a regular file" if over else "exists already"
        raise UsageError(f"{str(path)!r} {problem}", hint=hint) from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"{str(path)!r} cannot be written: {reason}") from error
