"""--module-options: what only the next load of a module changes, planned, written, taken away."""

import argparse
import os
from collections.abc import Iterable

from hbatune.act import modprobe, paths
from hbatune.boot import install
from hbatune.cli.text.output import note
from hbatune.facts.controls import rebuild_initramfs
from hbatune.facts.model import Machine
from hbatune.operations.situation import Situation
from hbatune.plan.module_options import Planned, option_lines, plan_options, roots_modules, written
from hbatune.plan.rows import Outcome, Row
from hbatune.render import render

_FOLDER, _TEMPLATE = "templates", "modprobe.conf.j2"


def add_module_options(parser: argparse.ArgumentParser) -> None:
    """Let the command take --module-options."""
    parser.add_argument(
        "--module-options",
        action="store_true",
        help="options of drivers' modules as well, which the next load of a module changes; for "
        "the adapter under the root disk only where it is named",
    )


def option_rows(situation: Situation, args: argparse.Namespace) -> tuple[Row, ...]:
    """Return the rows of the module options that were asked for, none without the switch."""
    if not args.module_options:
        return ()
    return _rows(_planned(situation, args))


def write_options(situation: Situation, args: argparse.Namespace) -> tuple[Row, ...]:
    """Write down what was asked for, and return its rows with their outcomes."""
    if not args.module_options:
        return ()
    planned = _planned(situation, args)
    wanted = option_lines(planned, situation.rendered)
    if wanted:
        text = render(_FOLDER, _TEMPLATE, profile=situation.profile.name, lines=wanted)
        errno = modprobe.write(paths.MODPROBE, text)
    else:
        errno = modprobe.remove(paths.MODPROBE)
    install.record(install.ROOT, paths.MANIFEST, paths.MODPROBE)
    rows = written(_rows(planned), modprobe.read(paths.MODPROBE), errno)
    changed = {row.target for row in rows if row.outcome is Outcome.WRITTEN}
    if changed:
        note(f"{paths.MODPROBE} is written; a module takes it over when it is loaded next")
        _tell_initramfs(changed, situation.machine)
    return rows


def remove_options(machine: Machine | None) -> bool:
    """Take away what was written down for the next load, if anything was; whether that is done.

    Without a ``machine`` nothing is said of the initramfs's part in it.
    """
    if install.changed(install.ROOT, paths.MANIFEST, paths.MODPROBE):
        note(f"{paths.MODPROBE} is not as hbatune wrote it, and is left")
        return False
    modules = {module for module, _ in modprobe.read(paths.MODPROBE)}
    there = paths.MODPROBE.exists()
    errno = modprobe.remove(paths.MODPROBE)
    if errno is not None:
        note(f"{paths.MODPROBE} cannot be taken away: {os.strerror(errno)}")
        return False
    install.record(install.ROOT, paths.MANIFEST, paths.MODPROBE)
    if there:
        note(f"{paths.MODPROBE} is gone; a loaded module keeps what it has until it is loaded next")
        if machine is not None:
            _tell_initramfs(modules, machine)
    return True


def _planned(situation: Situation, args: argparse.Namespace) -> tuple[Planned, ...]:
    return plan_options(
        situation.machine,
        situation.profile,
        situation.rendered,
        only=_adapters(situation, args.targets) if args.targets else None,
        named=args.targets,
        excluded=situation.site.exclude,
    )


def _rows(planned: Iterable[Planned]) -> tuple[Row, ...]:
    return tuple(each.row for each in planned if each.asked)


def _adapters(situation: Situation, names: Iterable[str]) -> frozenset[str]:
    """Return the adapters of all that was chosen, and those that were named without a disk."""
    of_disks = {each.adapter for each in situation.chosen if each.adapter}
    return frozenset(of_disks | set(names))


def _tell_initramfs(modules: Iterable[str], machine: Machine) -> None:
    """Say that the initramfs has to be rebuilt, where it loads one of these modules."""
    command = rebuild_initramfs()
    how = f"`{command}`" if command else "as your distribution does it"
    roots = sorted(set(modules) & roots_modules(machine))
    if roots:
        note(
            f"{', '.join(roots)} is loaded from the initramfs, since the root disk needs it: "
            f"rebuild that, {how}, or the next boot does not see the change"
        )
    elif modules:
        note(f"where the initramfs holds {', '.join(sorted(modules))}, rebuild that: {how}")
