"""Runs work in a fork of this process, and on request stops it at each of its system calls.

The processes that the fork starts are stopped, too (ptrace(2)). A ``Watcher`` decides what happens
at the stops. ``Registers`` reads and changes a call; it knows x86-64 only. A stop costs more than
most calls: a run that needs few of them names these, and the kernel filters them (seccomp(2)).
"""

import ctypes
import errno
import os
import signal
import struct
import sys
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import NoReturn

_TRACEME, _POKEUSER, _CONT, _DETACH, _SYSCALL = 0, 6, 7, 17, 24  # sys/ptrace.h
_SETOPTIONS, _GETEVENTMSG, _GET_SYSCALL_INFO = 0x4200, 0x4201, 0x420E
_SYSGOOD, _FORK, _VFORK, _CLONE, _EXEC, _SECCOMP, _EXITKILL = 1, 2, 4, 8, 16, 1 << 7, 1 << 20
_OPTIONS = _SYSGOOD | _FORK | _VFORK | _CLONE | _EXEC | _SECCOMP | _EXITKILL
_EVENT_FORK, _EVENT_VFORK, _EVENT_CLONE, _EVENT_EXEC, _EVENT_SECCOMP = 1, 2, 3, 4, 7
_SYSCALL_STOP = signal.SIGTRAP | 0x80
_WALL = 0x40000000
_INFO = struct.Struct("<B3xIQQ7Q")  # linux/ptrace.h: struct ptrace_syscall_info
_ENTRIES = (1, 3)  # a stop at a call's entry: of every call, or of one that the filter has
_SET_SECCOMP, _FILTER = 22, 2  # linux/prctl.h, linux/seccomp.h
_TRACE, _ALLOW = 0x7FF00000, 0x7FFF0000
_INSTRUCTION = struct.Struct("<HBBI")  # linux/filter.h: struct sock_filter
_LOAD, _JUMP_EQUAL, _RETURN = 0x20, 0x15, 0x06  # linux/bpf_common.h
_RAX, _RDX, _ORIG_RAX = 80, 96, 120  # offsets in struct user (sys/user.h)
_NO_CALL = (1 << 64) - 1
_LONGEST = 60.0
"""Seconds that a run may take."""

_libc = ctypes.CDLL(None, use_errno=True)
_ptrace = _libc.ptrace
_ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


@dataclass(frozen=True)
class Ended:
    """How a run ended and its output. ``late`` is whether it was killed at its time limit."""

    code: int
    out: str = ""
    err: str = ""
    late: bool = False

    @property
    def killed(self) -> bool:
        """Whether SIGKILL ended it."""
        return self.code == -signal.SIGKILL


class Watcher:
    """Decides at the stops of a traced run; this one lets everything continue."""

    def stopped(self, pid: int) -> bool:
        """Handle a stop before or after a system call; return False to leave the process stopped.

        A process that stays stopped ends with the run. With chosen calls, a stop after one comes
        only if ``awaits_exit`` requested it.
        """
        return True

    def awaits_exit(self, pid: int) -> bool:
        """Whether the process shall stop after the call before which it is stopped."""
        return False

    def forked(self, parent: int, child: int, *, starts_program: bool) -> None:
        """Take note of a new process; ``starts_program`` tells vfork(2) from other calls."""

    def executes(self, pid: int) -> bool | None:
        """Handle the start of a program: return None to no longer trace it, False to stop it."""
        return True


class Run:
    """A fork of this process that does ``work``, which returns its exit code.

    ``numbers`` are the system calls before which a traced run stops. Without them it stops before
    and after all calls.
    """

    def __init__(
        self,
        work: Callable[[], int],
        *,
        traced: bool = False,
        numbers: Collection[int] = (),
        longest: float = _LONGEST,
    ) -> None:
        self._files = [os.memfd_create(name) for name in ("out", "err")]
        self._longest = longest
        self._numbers = numbers
        self._go_on = _CONT if numbers else _SYSCALL
        self.pid = os.fork()
        if self.pid == 0:
            self._be(work, traced)

    def wait(self) -> Ended:
        """Wait for its end."""
        return self._ended(os.waitpid(self.pid, 0)[1], late=False)

    def trace(self, watcher: Watcher) -> Ended:
        """Let it run from stop to stop until all of its processes have ended."""
        os.waitpid(self.pid, 0)  # its own SIGSTOP
        _call(_SETOPTIONS, self.pid, _OPTIONS)
        _call(self._go_on, self.pid, 0)
        with self._limit() as late:
            status = self._stops(watcher)
        return self._ended(status, late=bool(late))

    def _stops(self, watcher: Watcher) -> int:
        """Handle all stops; return the wait status of the run's first process."""
        status = 0
        announced: set[int] = {self.pid}
        early: set[int] = set()  # processes whose first stop came before their parent's
        stopped_pids: set[int] = set()
        programs: set[int] = set()  # their calls are not the watcher's, but the filter stays
        while True:
            try:
                pid, wait_status = os.waitpid(-1, _WALL)
            except ChildProcessError:
                return status
            if not os.WIFSTOPPED(wait_status):
                stopped_pids.discard(pid)
                programs.discard(pid)
                if pid == self.pid:
                    status = wait_status
                    for stopped in stopped_pids:
                        os.kill(stopped, signal.SIGKILL)
                continue
            signal_number, event = os.WSTOPSIG(wait_status), wait_status >> 16
            goes_on: bool | None = True
            how = self._go_on
            if signal_number == _SYSCALL_STOP:
                goes_on = watcher.stopped(pid)
            elif event == _EVENT_SECCOMP:
                if pid not in programs:
                    goes_on = watcher.stopped(pid)
                    how = _SYSCALL if watcher.awaits_exit(pid) else _CONT
            elif event in (_EVENT_FORK, _EVENT_VFORK, _EVENT_CLONE):
                child = _message(pid)
                announced.add(child)
                if pid in programs:
                    programs.add(child)
                else:
                    watcher.forked(pid, child, starts_program=event == _EVENT_VFORK)
                if child in early:
                    early.discard(child)
                    _call(self._go_on, child, 0)
            elif event == _EVENT_EXEC:
                goes_on = watcher.executes(pid)
                if goes_on is None and self._numbers:
                    # A call that the filter has fails without a tracer: it stays traced.
                    programs.add(pid)
                    goes_on = True
            elif signal_number == signal.SIGSTOP and pid not in announced:
                early.add(pid)
                continue
            # Stops of ptrace itself carry no signal; every other one is passed on to the process.
            is_ptrace_stop = signal_number in (_SYSCALL_STOP, signal.SIGTRAP, signal.SIGSTOP)
            if goes_on is None:
                _call(_DETACH, pid, 0)
            elif goes_on:
                _call(how, pid, 0 if is_ptrace_stop else signal_number)
            else:
                stopped_pids.add(pid)

    @contextmanager
    def _limit(self) -> Iterator[list[bool]]:
        """Kill the run at its time limit, so that a hang ends as a failed test."""
        late: list[bool] = []

        def kill(number: int, frame: FrameType | None) -> None:
            late.append(True)
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

        before = signal.signal(signal.SIGALRM, kill)
        signal.setitimer(signal.ITIMER_REAL, self._longest)
        try:
            yield late
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    def _be(self, work: Callable[[], int], traced: bool) -> NoReturn:
        code = 99
        try:
            os.dup2(self._files[0], 1)
            os.dup2(self._files[1], 2)
            sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
            sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
            if traced:
                _call(_TRACEME, 0, 0)
                os.kill(os.getpid(), signal.SIGSTOP)
                if self._numbers:
                    _filter(self._numbers)
            code = work()
        except BaseException:  # noqa: BLE001  (this process ends here, whatever it was)
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _ended(self, status: int, *, late: bool) -> Ended:
        texts = []
        for file in self._files:
            os.lseek(file, 0, os.SEEK_SET)
            with open(file, errors="replace") as stream:
                texts.append(stream.read())
        return Ended(os.waitstatus_to_exitcode(status), texts[0], texts[1], late)


class Registers:
    """The system call at which a process is stopped."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        _ptrace(_GET_SYSCALL_INFO, pid, _INFO.size, ctypes.addressof(_BUFFER))
        operation, _, _, _, *numbers = _INFO.unpack_from(_BUFFER)
        self.is_entry = operation in _ENTRIES
        self.number = numbers[0] if self.is_entry else -1
        self.arguments = numbers[1:]

    def skip(self, result: int) -> None:
        """Have the kernel skip the call, at its entry in the filter, with this result."""
        _call(_POKEUSER, self._pid, _NO_CALL, at=_ORIG_RAX)
        self.answer(result)

    def shorten(self, length: int) -> None:
        """Change the third argument, at the call's entry."""
        _call(_POKEUSER, self._pid, length, at=_RDX)

    def answer(self, result: int) -> None:
        """Set the result, at the call's exit or as it is skipped: negative for an errno."""
        _call(_POKEUSER, self._pid, result & _NO_CALL, at=_RAX)

    def bytes_at(self, address: int, length: int) -> bytes:
        """Return memory of the process."""
        with open(f"/proc/{self._pid}/mem", "rb", buffering=0) as memory:
            return os.pread(memory.fileno(), length, address)

    def text_at(self, address: int) -> str:
        """Return the path that begins at an address."""
        return os.fsdecode(self.bytes_at(address, _PATH_MAX).split(b"\0", 1)[0])


_PATH_MAX = 4096
_BUFFER = ctypes.create_string_buffer(_INFO.size)


def _filter(numbers: Collection[int]) -> None:
    """Have this process and its children stop before these system calls only."""
    chosen = sorted(numbers)
    program = [
        (_LOAD, 0, 0, 0),  # the number of the call: struct seccomp_data
        # To the last instruction but one or, after all comparisons, to the last one.
        *((_JUMP_EQUAL, len(chosen) - at, 0, number) for at, number in enumerate(chosen)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _TRACE),
    ]
    code = b"".join(_INSTRUCTION.pack(*instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(code)
    header = struct.pack("@HP", len(program), ctypes.addressof(buffer))
    if _libc.prctl(_SET_SECCOMP, _FILTER, header, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_SECCOMP)")


def _message(pid: int) -> int:
    number = ctypes.c_ulong()
    _call(_GETEVENTMSG, pid, ctypes.addressof(number))
    return number.value


def _call(request: int, pid: int, data: int, *, at: int = 0) -> None:
    """Call ptrace(2); a process that was killed meanwhile is no error, waitpid(2) reports it."""
    if _ptrace(request, pid, at, data) == -1 and ctypes.get_errno() != errno.ESRCH:
        raise OSError(ctypes.get_errno(), f"ptrace({request:#x})")
