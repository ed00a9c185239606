"""Where the rules and templates that come with hbatune lie, in a checkout and in a wheel."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def shipped(folder: str) -> Path:
    """Return the shipped ``folder`` (``rules``, ``udev``, ``systemd``, ``fio``).

    A wheel carries the top-level folders of a checkout inside the package (setup.cfg).
    """
    installed = _PACKAGE / "_shipped" / folder
    return installed if installed.is_dir() else _PACKAGE.parent / folder
