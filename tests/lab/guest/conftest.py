"""Fixtures of the tests that run in the guest."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.lab.guest import virtual
from tests.lab.guest.kit import loaded_scsi_debug


@pytest.fixture
def scsi_debug() -> Iterator[Callable[..., list[str]]]:
    """Return a function that loads scsi_debug once, with options, and returns its disks."""
    with ExitStack() as stack:

        def load(**options: object) -> list[str]:
            return stack.enter_context(loaded_scsi_debug(**options))

        yield load


@pytest.fixture
def joined(scsi_debug: Callable[..., list[str]]) -> Iterator[tuple[str, list[str]]]:
    """A map over the two paths of one LUN, and those paths."""
    from tests.lab.guest import multipath  # the host reads this file, too, and has no such machine

    # Without ALUA the paths are equal. scsi_debug's state of a path follows the number of its host
    # (drivers/scsi/scsi_debug.c: resp_report_tgtpgs), and an earlier test may have loaded ALUA.
    subprocess.run(["modprobe", "--remove", "scsi_dh_alua"], check=True)
    paths = scsi_debug(add_host=2, max_luns=1, vpd_use_hostno=0, max_queue=192)
    with multipath.joined() as name:
        yield name, paths


@pytest.fixture(scope="module")
def virtual_disks_wanted() -> Iterator[None]:
    """Have a site's rules for the scheduler and the requests of virtual disks."""
    with virtual.wanted():
        yield


@pytest.fixture
def rolled_back() -> Iterator[None]:
    """Roll back after the test, which ends with everything as it found it."""
    from tests.lab.guest.command import configure, hbatune
    from tests.lab.guest.values import everything

    before = everything()
    yield
    configure("")
    hbatune("rollback")
    after = everything()
    assert {name: after.get(name) for name in before if name in after} == {
        name: text for name, text in before.items() if name in after
    }
