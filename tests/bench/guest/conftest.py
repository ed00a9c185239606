"""Fixtures of the benches that run in the guest."""

import platform

import pytest

from tests.lab.guest.conftest import virtual_disks_wanted

__all__ = ["series", "virtual_disks_wanted"]


@pytest.fixture(scope="session")
def series() -> str:
    """The kernel's series, such as ``6.12``."""
    return ".".join(platform.release().split(".")[:2])
