"""Fixtures of the tests that run in the guest."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.lab.guest.kit import loaded_scsi_debug


@pytest.fixture
def scsi_debug() -> Iterator[Callable[..., list[str]]]:
    """Return a function that loads scsi_debug once, with options, and returns its disks."""
    with ExitStack() as stack:

        def load(**options: object) -> list[str]:
            return stack.enter_context(loaded_scsi_debug(**options))

        yield load
