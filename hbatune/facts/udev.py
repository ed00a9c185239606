"""udev's library, loaded once: pyudev runs ldconfig each time that it looks for it."""

from functools import cache

import pyudev


@cache
def context() -> pyudev.Context:
    """Return what everything that is asked of udev begins with; forks share it."""
    return pyudev.Context()
