"""Child processes: run programs with deadlines, and abandon processes that do not end.

A process that waits uninterruptibly in the kernel (state D in proc(5)) does not end on SIGKILL. It
is abandoned and counted. Its exit status is collected later, without waiting.
"""

import errno
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

TYPE_CHECKING = False  # `hbatune status` does not load typing
if TYPE_CHECKING:
    from subprocess import CompletedProcess, Popen

GRACE_S = 2.0
"""Seconds for a killed process to end. It takes milliseconds, unless it waits in the kernel."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.0005, 0.05

_abandoned: list[int] = []


def run(
    command: Sequence[str],
    seconds: float,
    *,
    env: Mapping[str, str] | None = None,
    prepare: Callable[[], None] | None = None,
) -> "CompletedProcess[bytes]":
    """Run a program without input, in its own session; return its exit status and output.

    ``prepare`` is called in the child. Raises OSError if the program cannot be started, and
    TimeoutError if it does not end within the given seconds.
    """
    import subprocess  # most commands and the daemon start no program

    running = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
        start_new_session=True,
        preexec_fn=prepare,
    )
    try:
        output, errors = running.communicate(timeout=seconds)
    except subprocess.TimeoutExpired as error:
        stop(running)
        raise TimeoutError(errno.ETIMEDOUT, f"it did not end within {seconds:g} s") from error
    except BaseException:
        stop(running)
        raise
    return subprocess.CompletedProcess(command, running.returncode, output, errors)


def stop(running: "Popen[bytes]", seconds: float = GRACE_S) -> int | None:
    """Kill a program and its session; return its exit status, or None if it is abandoned."""
    with suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    status = wait(running, seconds)
    if status is None:
        _abandoned.append(running.pid)
        # ``collect_abandoned`` collects its exit status, not Popen.
        running.returncode = -signal.SIGKILL
    for stream in (running.stdin, running.stdout, running.stderr):
        if stream is not None:
            stream.close()
    return status


def wait(running: "Popen[bytes]", seconds: float) -> int | None:
    """Return the exit status of a program, or None if it does not end in time."""
    from subprocess import TimeoutExpired

    try:
        return running.wait(seconds)
    except TimeoutExpired:
        return None


def kill(pid: int, seconds: float = GRACE_S) -> bool:
    """Kill a forked child; return whether it has ended, or False if it is abandoned."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    limit, pause = time.monotonic() + seconds, _FIRST_PAUSE_S
    while not has_ended(pid):
        remaining = limit - time.monotonic()
        if remaining <= 0:
            _abandoned.append(pid)
            return False
        time.sleep(min(pause, remaining))
        pause = min(2 * pause, _LONGEST_PAUSE_S)
    return True


def collect_abandoned() -> int:
    """Collect the abandoned processes that have ended since; return the number of the others."""
    _abandoned[:] = [pid for pid in _abandoned if not has_ended(pid)]
    return len(_abandoned)


def has_ended(pid: int) -> bool:
    """Collect the exit status of a child if it has ended; return whether it has."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:  # collected already, or in a fork: the parent's child
        return True
