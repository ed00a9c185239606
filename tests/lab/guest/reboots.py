"""Rebooting the guest in the middle of a test, which then begins anew and finds what it kept."""

from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.lab.agent import boots

_SERVER = Path("/etc/systemd/system/lab.target.d/server.conf")
_LOGIN = Path("/etc/systemd/system/serial-getty@ttyS0.service")


def take_state() -> dict[str, Any]:
    """Return the state saved before the reboot, or an empty dict before the first one."""
    return boots.take_state()


def reboot(**state: Any) -> NoReturn:
    """Reboot and start this test again with the saved state."""
    boots.keep(state)
    pytest.exit("rebooting", returncode=boots.REBOOT)


def boot_as_a_server() -> None:
    """Have the next boots reach multi-user.target, as those of a server do."""
    _SERVER.parent.mkdir(parents=True, exist_ok=True)
    _SERVER.write_text("[Unit]\nWants=multi-user.target\n")
    _LOGIN.symlink_to("/dev/null")  # it would hang up the terminal that the tests write to


def boot_as_before() -> None:
    """Have the next boots start what the tests need and nothing else."""
    _LOGIN.unlink()
    _SERVER.unlink()
    _SERVER.parent.rmdir()
