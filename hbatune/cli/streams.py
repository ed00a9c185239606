"""The standard streams, which a caller may have closed."""

import os
import sys


def open_standard_streams() -> None:
    """Have descriptors 0, 1 and 2 open, on /dev/null where the caller has closed them.

    To be called before anything is opened: a pipe or socket would take the free number, and what
    was meant for people, or for a program that is started, would go there.
    """
    closed = [descriptor for descriptor in (0, 1, 2) if not _is_open(descriptor)]
    for descriptor in closed:  # open(2) takes the lowest free number
        os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        stream = open(  # noqa: SIM115  (it is open as long as the process runs)
            descriptor, "w" if descriptor else "r", errors="backslashreplace", closefd=False
        )
        setattr(sys, ("stdin", "stdout", "stderr")[descriptor], stream)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
