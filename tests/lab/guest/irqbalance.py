"""Debian's irqbalance.service under systemd, and a user's process with its name."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab.guest.service import systemctl

_UNIT = "irqbalance.service"
_DROP_IN = Path(f"/run/systemd/system/{_UNIT}.d/test.conf")
_FILE = Path("/etc/default/irqbalance")
_NOBODY = 65534

Placed = dict[str, str]
"""The CPUs of interrupts, by target."""


def read_affinities(placed: Placed) -> Placed:
    """Return the current affinity of each interrupt."""
    files = {irq: Path(f"/proc/irq/{irq.removeprefix('irq')}/smp_affinity_list") for irq in placed}
    return {irq: file.read_text().strip() for irq, file in files.items()}


@contextmanager
def irqbalance(*options: str, banned: str = "") -> Iterator[int]:
    """Run the service with these options and banned CPUs, and yield its main process."""
    lines = ["[Service]", f'Environment="IRQBALANCE_ARGS={" ".join(options)}"']
    if banned:
        lines.append(f"Environment=IRQBALANCE_BANNED_CPULIST={banned}")
    _DROP_IN.parent.mkdir(parents=True)
    _DROP_IN.write_text("\n".join(lines) + "\n")
    try:
        systemctl("daemon-reload")
        systemctl("start", _UNIT)
        yield int(systemctl("show", "--property=MainPID", "--value", _UNIT))
    finally:
        systemctl("stop", _UNIT)
        _DROP_IN.unlink()
        _DROP_IN.parent.rmdir()
        systemctl("daemon-reload")


@contextmanager
def banned_in_file(cpus: str) -> Iterator[None]:
    """Ban CPUs in the file that Debian's unit names with EnvironmentFile=."""
    before = _FILE.read_text()
    _FILE.write_text(f"IRQBALANCE_BANNED_CPULIST={cpus}\n")
    try:
        yield
    finally:
        _FILE.write_text(before)


@contextmanager
def named_irqbalance(*arguments: str, banned: str) -> Iterator[None]:
    """Run a process of an ordinary user that has irqbalance's name."""
    script = "printf irqbalance >/proc/self/comm && echo ready && read -r line"
    with subprocess.Popen(
        ["sh", "-c", script, "irqbalance", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        user=_NOBODY,
        env={**os.environ, "IRQBALANCE_BANNED_CPULIST": banned},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield
        process.communicate(b"\n")
