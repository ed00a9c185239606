"""One QEMU machine: started, listened to, and never left behind."""

import math
import os
import re
import select
import shlex
import signal
import socket
import subprocess
import time
from collections import deque
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.lab.emulator import Emulator, emulator
from tests.lab.image import Image
from tests.lab.topology import QEMUS_OWN, Topology, adapters

THREAD_PER_CPU = "tcg,thread=multi,tb-size=512"
"""How QEMU emulates a guest that runs alone: both of its CPUs at the same time."""
ONE_THREAD = "tcg,thread=single,tb-size=512"
"""How QEMU emulates one of several guests: its CPUs in turn. A thread for each CPU would often wait
for the other one, which does not run, and atomic instructions cost more between threads. Three
guests with one fixed load took 132 s with two threads each, and 96 s with one."""
COUNTED_TIME = ("-icount", "shift=1,sleep=off")
"""A clock that counts instructions, 2 ns for each, and jumps to the next timer if no CPU has work.
So nothing else that runs here changes the guest's times, and its sleeps take none. The times of
scsi_debug, a disk in the guest's memory, are exact. But reads of QEMU's disks take real time, in
which this clock may jump far, by minutes if other guests run. It needs ``ONE_THREAD``.
"""
MEMORY = "2G"
PROCESSORS = 2
CPU = "qemu64,-cx16,+ssse3,+sse4.1,+sse4.2,+popcnt,+rdrand"
"""A plain one, a tenth faster to emulate than all that QEMU can, and without cmpxchg16b: QEMU 7.2
was seen to leave garbage in the flags behind it, upon which the kernel's allocator panicked."""
BOOT_SECONDS = 150
"""In which a guest has to say something, ten times what it takes."""
MANY_DRIVES_BOOT_SECONDS = 900
"""The same where udev looks at 224 drives."""
BOOTS = 3
STALE_BREAKPOINT = re.compile(rb"\bint3: 0000 \[#1\]")
"""With this a kernel panics that met a breakpoint of its own after it had taken it back. It changes
its code under way by means of breakpoints (arch/x86/kernel/alternative.c: text_poke_bp_batch), and
QEMU 7.2 translates on one processor what another is just writing: the store follows the end of the
old translation (accel/tcg/cputlb.c: store_helper), so the old bytes can be translated in between
and last. Seen in one of some hundred starts of bpftrace, which changes ksys_read each time."""
KERNEL_ARGUMENTS = (
    "console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off nowatchdog audit=0 apparmor=0"
    " 8250.nr_uarts=4 random.trust_cpu=on rcupdate.rcu_cpu_stall_suppress=1 net.ifnames=0"
    " systemd.show_status=0 no_timer_check systemd.condition_needs_update=no lsm=capability psi=0"
    " transparent_hugepage=never"
)
"""``no_timer_check``: on a busy host the kernel counts too few ticks of its timer, and panics
(arch/x86/kernel/apic/io_apic.c: check_timer). ``systemd.condition_needs_update=no``: each boot is
the image's first, and systemd would make the caches of ldconfig and the journal's catalogue again
(systemd.unit(5): ConditionNeedsUpdate). ``lsm=capability psi=0``: security modules without a policy
and the accounting of pressure take a tenth of the CPU time of an emulated guest.
``transparent_hugepage=never``: QEMU drops a large page's whole region when one page of it changes
(accel/tcg/cputlb.c: tlb_flush_page_locked), as the copies after a fork do all the time. Without
them, tests with many forks take a twelfth less time."""


class MachineEnded(Exception):
    """The machine is gone, or as good as gone."""


class Silent(MachineEnded):
    """The machine did not say anything within the time given."""


class Terminal(Enum):
    """The third serial port: nothing, shown on standard output, or ours to type at as well."""

    NONE = "none"
    SHOWN = "shown"
    TYPED = "typed"


class Machine:
    """A guest. ``receive`` gives the lines of its second serial port.

    ``resets`` counts the boots that hung.

    The first serial port is the console, kept in a file; what is on the third, ``terminal`` says.
    Port ``ssh`` of this machine leads to the guest's sshd; it reaches nothing else.
    With a tri-mode card, the guest has a monitor of QEMU's for itself: /dev/virtio-ports/monitor.
    The kernel ends QEMU with the thread that started it, however that ends.
    """

    _patience = BOOT_SECONDS

    def __init__(
        self,
        image: Image,
        series: str,
        *,
        job: Path,
        disk: Path,
        console: Path,
        topology: Topology = Topology.MIXED,
        terminal: Terminal = Terminal.NONE,
        ssh: int | None = None,
        accelerator: str = THREAD_PER_CPU,
    ) -> None:
        self.series = series
        self._image, self._job, self._disk = image, job, disk
        self._console, self._topology, self._terminal = console, topology, terminal
        self._ssh, self._accelerator = ssh, accelerator
        if topology is Topology.MANY_DRIVES:
            self._patience = MANY_DRIVES_BOOT_SECONDS
        self.resets = 0
        self._lines: deque[bytes] = deque()
        self._rest = b""
        self._process: subprocess.Popen[bytes] | None = None
        self._port: int | None = None
        self._monitor: socket.socket | None = None
        self._killed = False

    def start(self) -> None:
        """Switch it on. Raises MachineEnded where it was killed before."""
        if self._killed:
            raise MachineEnded("it was not needed any more")
        self._port, port = os.pipe()
        self._monitor, monitor = socket.socketpair()
        guest = socket.socketpair()
        guest_files = [port, *(end.fileno() for end in (monitor, *guest))]
        qemu = emulator()
        try:
            self._process = subprocess.Popen(
                self._command(qemu, port, monitor, guest),
                # QEMU takes the keyboard's signals away from a terminal that it reads, and ends by
                # those that it gets: Ctrl-C is ours, but where a person types to the guest.
                stdin=None if self._terminal is Terminal.TYPED else subprocess.DEVNULL,
                process_group=None if self._terminal is Terminal.TYPED else 0,
                pass_fds=guest_files,
            )
        finally:
            os.close(port)
            for end in (monitor, *guest):
                end.close()

    def boot(self) -> bytes:
        """Return the first line after the guest was started or rebooted.

        A boot in which nothing is heard is begun anew, since without KVM one in some hundred loses
        an interrupt of the second processor, for which the kernel then waits for ever (seen with
        QEMU 7.2 and Linux 6.12). Raises MachineEnded like ``receive``.
        """
        for _ in range(BOOTS - 1):
            try:
                return self.receive(time.monotonic() + self._patience)
            except Silent:
                self.reset()
        return self.receive(time.monotonic() + self._patience)

    def reset(self) -> None:
        """Press the button."""
        assert self._monitor is not None
        self.resets += 1
        self._monitor.sendall(b"system_reset\n")

    def receive(self, deadline: float) -> bytes:
        """Return the next line that the guest's agent sent.

        Raises MachineEnded when the machine has gone or ``deadline`` (time.monotonic) has passed.
        """
        assert self._port is not None
        assert self._process is not None
        while not self._lines:
            remaining_seconds = (
                None if deadline == math.inf else max(0, deadline - time.monotonic())
            )
            if not select.select([self._port], [], [], remaining_seconds)[0]:
                raise Silent("nothing was heard of it in time")
            data = os.read(self._port, 1 << 16)
            if not data:
                raise MachineEnded(ended_by(self._process.wait()))
            *lines, self._rest = (self._rest + data).split(b"\n")
            self._lines.extend(lines)
        return self._lines.popleft()

    def console_tail(self, lines: int = 40) -> str:
        """Return the end of what the guest's kernel and services printed."""
        text = self._console.read_text(errors="replace") if self._console.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def stale_breakpoints(self) -> int:
        """Return how often the kernel panicked by the emulator's fault (STALE_BREAKPOINT)."""
        text = self._console.read_bytes() if self._console.exists() else b""
        return len(STALE_BREAKPOINT.findall(text))

    def kill(self) -> None:
        """End QEMU now. Nothing on its disks is kept anyway."""
        self._killed = True
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
        if self._monitor is not None:
            self._monitor.close()
        if self._port is not None:
            os.close(self._port)

    def _command(
        self,
        emulator: Emulator,
        port: int,
        monitor: socket.socket,
        guest: tuple[socket.socket, socket.socket],
    ) -> list[str]:
        accelerator = os.environ.get("HBATUNE_LAB_ACCEL", self._accelerator)
        clock: tuple[str, ...] = ()
        if self._topology is Topology.COUNTED:
            accelerator, clock = ONE_THREAD, COUNTED_TIME
        image, series = self._image, self.series
        third = "null" if self._terminal is Terminal.NONE else "chardev:terminal"
        return [
            *("setpriv", "--pdeathsig", "KILL", "--", *emulator.command),
            *("-name", f"hbatune-lab-{series}", "-M", "q35", "-cpu", CPU),
            *("-accel", accelerator, *clock),
            *("-smp", str(PROCESSORS), "-m", MEMORY),
            *("-nodefaults", "-display", "none", *_network(self._ssh)),
            *("-chardev", f"socket,id=monitor,fd={monitor.fileno()}", "-mon", "chardev=monitor"),
            *("-kernel", str(image.kernel(series)), "-initrd", str(image.initrd(series))),
            *("-append", KERNEL_ARGUMENTS),
            *_virtio_disk("root", image.root),
            *_virtio_disk("job", self._job),
            *("-serial", f"file:{self._console}"),
            *("-chardev", f"file,id=port,path=/dev/fd/{port}", "-serial", "chardev:port"),
            *(() if third == "null" else ("-chardev", "stdio,id=terminal,signal=off")),
            *("-serial", third),
            *adapters(self._topology, self._disk),
            *(() if self._topology in QEMUS_OWN else _guests_monitor(*guest)),
            *shlex.split(os.environ.get("HBATUNE_LAB_QEMU_ARGUMENTS", "")),
        ]


def ended_by(code: int) -> str:
    """Return what became of a QEMU that is gone, by its exit code."""
    if code < 0:
        return f"QEMU was ended by {signal.Signals(-code).name}"
    if code > 0:
        return f"QEMU gave up with exit code {code}; above it says why"
    return "it switched itself off, or its kernel panicked"


def _virtio_disk(name: str, file: Path) -> list[str]:
    return [
        *("-drive", f"if=none,id={name},file={file},format=raw,snapshot=on,cache=unsafe"),
        *("-device", f"virtio-blk-pci,drive={name},serial={name}"),
    ]


def _network(ssh: int | None) -> list[str]:
    """Return the arguments for a network that has this machine's port to the guest's sshd alone."""
    if ssh is None:
        return ["-nic", "none"]
    forward = f"hostfwd=tcp:127.0.0.1:{ssh}-:22"
    return [
        *("-netdev", f"user,id=net,restrict=on,{forward}"),
        *("-device", "virtio-net-pci,netdev=net,romfile="),  # it boots from no network
    ]


def _guests_monitor(hands: socket.socket, hold: socket.socket) -> list[str]:
    """Return the arguments for a monitor of the guest's own: two ends of one connection."""
    return [
        *("-chardev", f"socket,id=hands,fd={hands.fileno()}", "-mon", "chardev=hands"),
        *("-chardev", f"socket,id=hold,fd={hold.fileno()}"),
        *("-device", "virtio-serial-pci", "-device", "virtserialport,chardev=hold,name=monitor"),
    ]
