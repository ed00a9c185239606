"""Fixtures of the benches that run in the guest."""

import platform

import pytest


@pytest.fixture(scope="session")
def series() -> str:
    """The kernel's series, such as ``6.12``."""
    return ".".join(platform.release().split(".")[:2])
