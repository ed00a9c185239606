"""hbatune tunes storage adapters on Linux, proves that it helped, and can restore it all."""

__version__ = "1.1.0"

TYPE_CHECKING = False
"""As in typing, whose import takes 1.7 ms: too long for ``hbatune status``. mypy knows the name."""
