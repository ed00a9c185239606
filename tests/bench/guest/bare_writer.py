"""The least that setting values can cost: 16 forked workers that read, write and read back.

``python3 bare_writer.py WORKERS ATTRIBUTE=VALUE… < DISKS`` sets the values of every disk that
standard input names (sysfs directories) in that order and prints the seconds that it took from
before the first fork until the last worker had ended, without the interpreter's own start.
"""

import os
import sys
import time


def write(disks: list[str], values: list[tuple[str, str]]) -> None:
    """Read, write and read back every value of these disks."""
    for disk in disks:
        for name, value in values:
            path = f"{disk}/{name}"
            _read(path)
            descriptor = os.open(path, os.O_WRONLY)
            os.write(descriptor, value.encode())
            os.close(descriptor)
            _read(path)


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    text = os.read(descriptor, 4096)
    os.close(descriptor)
    return text


def write_side_by_side(disks: list[str], values: list[tuple[str, str]], workers: int) -> float:
    """Share the disks out among forked workers and return the seconds that all of it took."""
    started = time.perf_counter()
    children = []
    for number in range(workers):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                write(disks[number::workers], values)
                status = 0
            finally:
                os._exit(status)
        children.append(pid)
    failed = [pid for pid in children if os.waitpid(pid, 0)[1]]
    took = time.perf_counter() - started
    if failed:
        raise RuntimeError(f"{len(failed)} writers failed")
    return took


if __name__ == "__main__":
    wanted = [(argument.split("=")[0], argument.split("=")[1]) for argument in sys.argv[2:]]
    print(write_side_by_side(sys.stdin.read().split(), wanted, int(sys.argv[1])))
