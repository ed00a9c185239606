"""Fleets for tests: snapshots of peers, in files."""

from pathlib import Path
from typing import Any

from msgspec.structs import replace

from hbatune.facts.model import Endpoint, Machine
from hbatune.snapshot.file import Snapshot, encode_snapshot
from tests.unit import machines as factory
from tests.unit.snapshots import snapshot


def host(number: int, *, adapter: dict[str, Any] | None = None, **disk: Any) -> Snapshot:
    """Return the snapshot of one of many hosts; ``adapter`` and ``disk`` make it another one."""
    return snapshot(machine(number, factory.endpoint(**disk), **adapter or {}))


def machine(number: int, *endpoints: Endpoint, **adapter: Any) -> Machine:
    """Return the machine ``dbN``."""
    base = factory.machine(*endpoints, adapters=(factory.adapter(**adapter),))
    return replace(base, hostname=f"db{number}")


def save(folder: Path, *snapshots: Snapshot) -> Path:
    """Write each snapshot to a file with its host's name, and return the folder."""
    for saved in snapshots:
        (folder / f"{saved.machine.hostname}.snap").write_bytes(encode_snapshot(saved))
    return folder


def depth(value: int) -> dict[str, Any]:
    """Return what makes the queue depth of a disk another one."""
    return {
        "attributes": factory.attributes(
            queue__scheduler="[none] mq-deadline",
            queue__nr_requests="256",
            device__queue_depth=str(value),
        )
    }
