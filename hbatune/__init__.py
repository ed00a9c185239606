"""hbatune tunes storage adapters on Linux, proves that it helped, and can put everything back.

Data walks one way through the rooms: facts → plan → act → prove → keep. ``facts`` is the only
room that reads sysfs, ``act`` the only one that writes, and ``plan`` does neither.
"""

__version__ = "1.1.0"

TYPE_CHECKING = False
"""As in typing, whose import takes 1.7 ms: too long for ``hbatune status``. mypy knows the name."""
