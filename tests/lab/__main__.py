"""``python -m tests.lab``: make the image, run a script in the guest, or get a shell there."""

import argparse
import math
import os
import signal
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from platform import freedesktop_os_release

from tests.lab.alone import alone
from tests.lab.emulator import emulator
from tests.lab.events import Done, Ready, decode
from tests.lab.image import DEBIAN_12_KERNELS, debian_12_image, list_releases
from tests.lab.job import JobDisks, terminal_job
from tests.lab.kernels import NEWEST, find_series, image, renew
from tests.lab.machine import Machine, MachineEnded, Terminal
from tests.lab.problem import LabError, require_lab
from tests.lab.progress import step
from tests.lab.topology import Topology, make_disk
from tests.lab.wheel import CHECKOUT

INTERRUPTED = 128 + signal.SIGINT


def main(argv: Sequence[str]) -> int:
    """Do what the command line says; a script's exit code is the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("image", help="make the root images that the cache lacks")
    shell = commands.add_parser("shell", help="a root shell in the guest; leave it with exit")
    run = commands.add_parser("run", help="run a shell script in the guest and show its output")
    run.add_argument("script", type=Path)
    for command in (shell, run):
        command.add_argument("--kernel", default=_host_kernel(), help="such as 6.12, or newest")
        command.add_argument(
            "--topology", type=Topology, choices=list(Topology), default=Topology.MIXED
        )
    args = parser.parse_args(argv)
    try:
        require_lab()
        if args.command == "image":
            _make_images()
            return 0
        emulator()
        if args.kernel == NEWEST and not list_releases():
            renew()
        series = find_series(args.kernel)
        return _terminal(series, args.topology, args.script if args.command == "run" else None)
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nlab: interrupted; the virtual machine, if any ran, is gone", file=sys.stderr)
        return INTERRUPTED


def _make_images() -> None:
    """Make QEMU and the images at the same time; on a terminal in turn, each with its seconds."""
    with ThreadPoolExecutor(1 if sys.stderr.isatty() else 3) as threads:
        for making in [threads.submit(make) for make in (emulator, debian_12_image, renew)]:
            making.result()


def _host_kernel() -> str:
    """Return the kernel that a user of this machine's Debian is likely to have."""
    try:
        release = freedesktop_os_release().get("VERSION_CODENAME")
    except OSError:
        release = None
    return NEWEST if release == "trixie" else DEBIAN_12_KERNELS[-1]


def _terminal(series: str, topology: Topology, script: Path | None) -> int:
    folder = CHECKOUT / "build" / "lab" / "terminal"
    guest_image = image(series)
    person = sys.stdout.isatty()
    size = os.get_terminal_size() if person else os.terminal_size((120, 40))
    arguments = [f"/job/{script.name}"] if script else []
    wanted = terminal_job(arguments, size, colours=person)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    with alone(folder):
        job = JobDisks(folder, guest_image.python).make(
            "job-disk", wanted, [script] if script else []
        )
        disk, console = folder / "disk.img", folder / "console.log"
        make_disk(disk)
        terminal = Terminal.SHOWN if script else Terminal.TYPED
        with Machine(
            guest_image,
            series,
            job=job,
            disk=disk,
            console=console,
            topology=topology,
            terminal=terminal,
        ) as machine:
            try:
                with step(f"lab: booting Linux {guest_image.release(series)}"):
                    machine.start()
                    _expect_ready(machine)
                return _exit_code(machine)
            except MachineEnded as ended:
                text = f"the guest ended early: {ended}\n{machine.console_tail()}"
                raise LabError(text) from ended


def _expect_ready(machine: Machine) -> None:
    event = decode(machine.boot())
    if not isinstance(event, Ready):
        raise LabError(f"the guest began with {event}")


def _exit_code(machine: Machine) -> int:
    while True:
        event = decode(machine.receive(math.inf))
        if isinstance(event, Done):
            return event.code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
