"""One built tree for each described machine."""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from hbatune.facts.model import Adapter, Endpoint, Machine, TargetKind
from hbatune.settings.table import list_attributes
from tests.elsewhere import keep_state_in
from tests.hosts import advised, families, lookalikes, machines, traps
from tests.hosts.namespace import can_enter, gather_in
from tests.hosts.tree import Described, build

MIXED = {
    build_machine.__name__: build_machine
    for build_machine in (machines.lab, machines.multipath, machines.hostile)
}
NAMED = {**families.MACHINES, **traps.MACHINES, **lookalikes.MACHINES}
ALL = {**NAMED, **MIXED, **advised.MACHINES}


@dataclass(frozen=True)
class Surveyed:
    """A described machine: where its tree is, and what hbatune found there."""

    root: Path
    machine: Machine

    @property
    def adapter(self) -> Adapter:
        """The first adapter."""
        return self.machine.adapters[0]

    @property
    def endpoints(self) -> dict[str, Endpoint]:
        """The endpoints by name."""
        return {endpoint.target: endpoint for endpoint in self.machine.endpoints}


@pytest.fixture(scope="session", autouse=True)
def _namespaces() -> None:
    if not can_enter():
        pytest.skip("needs root and mount namespaces")


@pytest.fixture(autouse=True)
def _state_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_state_in(tmp_path / "machine", monkeypatch)


@pytest.fixture
def built(tmp_path: Path) -> Iterator[Callable[[Described], Path]]:
    """Return what builds a machine's tree, in memory where there is such a file system."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as folder:

        def make(machine: Described) -> Path:
            build(machine, Path(folder))
            return Path(folder)

        yield make


@pytest.fixture(scope="session")
def surveyed(_namespaces: None) -> Iterator[Callable[[str], Surveyed]]:
    """Return what builds and surveys a named machine, once in a session."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:

        @cache
        def survey(name: str) -> Surveyed:
            root = Path(folder) / name
            build(families.describe(name, ALL), root)
            # A described controller has files alone: no features.
            names = ["ctrl_loss_tmo", "pm_qos_latency_tolerance_us"]
            files = list_attributes(names, TargetKind.CONTROLLER)
            return Surveyed(root, gather_in(root, list_attributes(), controllers=files))

        yield survey
