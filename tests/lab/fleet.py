"""Several guests at once that are reached by ssh, as an administrator's hosts are."""

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.lab.image import DEBIAN_12_KERNELS
from tests.lab.job import JobDisks, terminal_job
from tests.lab.kernels import image
from tests.lab.machine import ONE_THREAD, Machine, MachineEnded
from tests.lab.problem import LabError
from tests.lab.topology import make_disk

SCRIPT = Path(__file__).with_name("fleet.sh")
BOOT_SECONDS = 300
"""In which a guest has to answer ssh, beside others that boot."""
BETWEEN = 1.0


@dataclass(frozen=True)
class FleetHost:
    """A guest with the name that an inventory gives it, at a port of this machine."""

    name: str
    port: int
    key: Path

    def ssh(self, command: str) -> str:
        """Run a shell command there as root and return what it prints; CalledProcessError else."""
        words = ["ssh", *self.options, "-p", str(self.port), "root@127.0.0.1", command]
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout

    def put(self, file: Path, target: str) -> None:
        """Copy a file there."""
        words = ["scp", "-q", *self.options, "-P", str(self.port), str(file)]
        subprocess.run([*words, f"root@127.0.0.1:{target}"], check=True, capture_output=True)

    @property
    def options(self) -> list[str]:
        """The options of ssh that know neither this host nor any other."""
        return [
            *("-i", str(self.key), "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no"),
            *("-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"),
            *("-o", "ConnectTimeout=10"),
        ]


@contextlib.contextmanager
def fleet(
    folder: Path, names: Sequence[str], series: str = DEBIAN_12_KERNELS[-1]
) -> Iterator[list[FleetHost]]:
    """Yield as many guests as there are names, once each answers ssh.

    Raises LabError where one does not in time.
    """
    key, disk = folder / "fleet", folder / "disk.img"
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)],
        check=True,
    )
    wanted = terminal_job([f"/job/{SCRIPT.name}"], os.terminal_size((80, 24)), colours=False)
    guest_image = image(series)
    job = JobDisks(folder, guest_image.python).make(
        "job-disk", wanted, [SCRIPT, key.with_suffix(".pub")]
    )
    make_disk(disk)
    with contextlib.ExitStack() as stack:
        hosts = []
        for name in names:
            host = FleetHost(name, _free_port(), key)
            console = folder / f"{name}.log"
            machine = Machine(
                guest_image,
                series,
                job=job,
                disk=disk,
                console=console,
                ssh=host.port,
                accelerator=ONE_THREAD,
            )
            stack.enter_context(machine)
            machine.start()
            hosts.append((host, machine))
        for host, machine in hosts:
            _answers(host, machine)
        yield [host for host, _ in hosts]


def _answers(host: FleetHost, machine: Machine) -> None:
    """Wait until ssh works. LabError where the guest ends before that, or takes too long."""
    try:
        machine.boot()
    except MachineEnded as ended:
        raise LabError(f"{host.name} ended early: {ended}\n{machine.console_tail()}") from ended
    until = time.monotonic() + BOOT_SECONDS
    while True:
        try:
            host.ssh("true")
            return
        except subprocess.CalledProcessError as error:
            if time.monotonic() > until:
                evidence = f"{error.stderr}\n{machine.console_tail()}"
                raise LabError(f"{host.name} does not answer ssh: {evidence}") from error
        time.sleep(BETWEEN)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
