"""A program on a described machine with many disks that have been at work."""

import json
import tempfile
from pathlib import Path
from typing import Any

from tests.hosts.machines import build_many_luns
from tests.hosts.namespace import OWN_CONFIGURATION, run
from tests.hosts.tree import Described, build
from tests.lab.wheel import CHECKOUT


def run_with_luns(luns: int, installed: Path, module: str, *words: str, timeout: int) -> Any:
    """Run a module of tests.bench with the installed hbatune, and return its JSON result."""
    machine = build_many_luns(luns)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        build(machine, Path(folder))
        (Path(folder) / "proc/diskstats").write_text(_format_diskstats(machine))
        program = [str(installed / "python"), "-m", f"tests.bench.{module}"]
        command = [*OWN_CONFIGURATION, "env", "-C", str(CHECKOUT), *program]
        command += [str(installed / "hbatune"), *words]
        return json.loads(run(Path(folder), command, timeout=timeout))


def _format_diskstats(machine: Described) -> str:
    """Return /proc/diskstats of a machine whose disks have been at work and now have nothing to do.

    Without it the watch would have nothing to remember.
    """
    luns = [lun for function in machine.functions for host in function.hosts for lun in host.luns]
    lines = []
    for number, lun in enumerate(luns):
        assert lun.disk is not None
        counts = [10**7, 20, 10**9, 3 * 10**6, 5 * 10**6, 3, 4 * 10**8, 10**6, 0, 10**6, 10**6]
        counted = (str(count and count + number) for count in counts)
        device = f"{8 + number // 16} {number % 16 * 16}"
        lines.append(f"{device} {lun.disk.name} {' '.join(counted)} 0 0 0 0 0 0\n")
    return "".join(lines)
