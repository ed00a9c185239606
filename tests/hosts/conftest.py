"""One built tree for each described machine."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.hosts.namespace import can_enter
from tests.hosts.tree import Described, build


@pytest.fixture(scope="session", autouse=True)
def _namespaces() -> None:
    if not can_enter():
        pytest.skip("needs root and mount namespaces")


@pytest.fixture
def built(tmp_path: Path) -> Iterator[Callable[[Described], Path]]:
    """Return what builds a machine's tree, in memory where there is such a file system."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as folder:

        def make(machine: Described) -> Path:
            build(machine, Path(folder))
            return Path(folder)

        yield make
