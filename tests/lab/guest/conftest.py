"""Fixtures of the tests that run in the guest."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.lab.guest.kit import loaded_scsi_debug

LAB = Path("/run/lab")

if not LAB.is_dir():
    raise pytest.UsageError("guest tests change the machine: they run in the lab only")


@pytest.fixture
def scsi_debug() -> Iterator[Callable[..., list[str]]]:
    """Return a function that loads scsi_debug once, with options, and returns its disks."""
    with ExitStack() as stack:

        def load(**options: object) -> list[str]:
            return stack.enter_context(loaded_scsi_debug(**options))

        yield load
