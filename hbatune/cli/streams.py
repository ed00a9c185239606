"""Opens the standard streams that a caller may have closed."""

import os
import sys


def open_standard_streams() -> None:
    """Open descriptors 0, 1 and 2 on /dev/null where the caller has closed them.

    To be called before any file is opened: a file, pipe or socket would take the free number, and
    messages, or the output of a child process, would be written into it.
    """
    closed = [descriptor for descriptor in (0, 1, 2) if not _is_open(descriptor)]
    for descriptor in closed:  # open(2) takes the lowest free number
        # Child processes need the three numbers as well; Python opens files not inheritable.
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
