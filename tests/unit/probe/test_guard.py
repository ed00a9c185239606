"""What must never be written to: each guard alone is enough."""

import errno
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from hbatune.facts.model import Endpoint, Kind
from hbatune.probe import guard
from hbatune.probe.guard import claim_device, find_write_refusal, read_signature
from hbatune.probe.result import Skip, Subject
from tests.unit.machines import endpoint


@pytest.fixture
def empty(tmp_path: Path) -> Endpoint:
    """An endpoint on which nothing is, with a file in the place of its node."""
    node = tmp_path / "node"
    node.write_bytes(bytes(1 << 20))
    sysfs = tmp_path / "sda"
    (sysfs / "queue").mkdir(parents=True)
    return endpoint(device_node=str(node), sysfs=str(sysfs), mounts=(), holders=())


def why(disk: Endpoint, *named: str, look: object = lambda node: None) -> Skip | None:
    with pytest.MonkeyPatch.context() as patched:
        if look is not None:
            patched.setattr(guard, "read_signature", look)
        skipped = find_write_refusal(Subject(disk), named or ("sda",))
    return skipped.reason if skipped else None


@pytest.mark.parametrize("name", ["sda", "/dev/sda"])
def test_named_empty_disk_is_writable(empty: Endpoint, name: str) -> None:
    assert why(empty, name) is None
    assert why(empty, empty.id) is None
    assert why(empty, empty.id.partition("@")[0]) is None


@pytest.mark.parametrize("name", ["sdb", "0000:01:00.0", "host0"])
def test_adapter_name_permits_no_write(empty: Endpoint, name: str) -> None:
    assert why(empty, name) is Skip.NOT_NAMED


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"mounts": ("/srv",)}, Skip.MOUNTED),
        ({"mounts": ("[SWAP]",)}, Skip.SWAP),
        ({"holders": ("md0",)}, Skip.HELD),
        ({"map": "dm-0"}, Skip.MULTIPATH),
        ({"kind": Kind.MAP}, Skip.MULTIPATH),
        ({"kind": Kind.PATH}, Skip.MULTIPATH),
        ({"device_node": None}, Skip.NO_NODE),
    ],
)
def test_disk_in_use_is_refused(empty: Endpoint, changes: dict[str, object], reason: Skip) -> None:
    assert why(replace(empty, **changes)) is reason


def test_partition_blocks_writes(empty: Endpoint) -> None:
    (Path(empty.sysfs) / "sda1").mkdir()
    (Path(empty.sysfs) / "sda1" / "partition").write_text("1")
    assert why(empty) is Skip.PARTITIONED


def test_uninspectable_disk_is_refused(empty: Endpoint) -> None:
    assert why(replace(empty, sysfs="/nonexistent/sda")) is Skip.PARTITIONED
    blind = OSError(errno.ENOENT, "No such file or directory: blkid")
    assert why(empty, look=lambda node: blind) is Skip.UNKNOWN_CONTENT


def test_locked_disk_is_refused(empty: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(*arguments: object) -> int:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    monkeypatch.setattr("hbatune.probe.guard.os.open", busy)
    with claim_device(Subject(empty)) as refused:
        assert refused is not None
        assert refused.reason is Skip.TAKEN


def test_free_disk_is_granted(empty: Endpoint) -> None:
    with claim_device(Subject(empty)) as refused:
        assert refused is None
    with claim_device(Subject(replace(empty, device_node="/nonexistent/sda"))) as refused:
        assert refused is not None
        assert refused.reason is Skip.UNKNOWN_CONTENT


def test_device_signature_is_detected(empty: Endpoint) -> None:
    node = Path(empty.device_node or "")
    assert read_signature(str(node)) is None
    content = bytearray(1 << 20)
    content[:8] = b"LUKS\xba\xbe\x00\x01"
    content[8:11] = b"aes"
    node.write_bytes(content)
    assert read_signature(str(node)) == "crypto_LUKS"
    assert why(empty, look=None) is Skip.SIGNED


def test_partition_table_is_signature(empty: Endpoint) -> None:
    content = bytearray(1 << 20)
    content[446:462] = bytes([0, 0, 2, 0, 0x83, 0, 0, 0, 1, 0, 0, 0, 0xFF, 7, 0, 0])
    content[510:512] = b"\x55\xaa"
    Path(empty.device_node or "").write_bytes(content)
    assert read_signature(empty.device_node or "") == "dos"


# blkid(8): 2 means that nothing was found, 8 that several things were; all else is a failure.
@pytest.mark.parametrize("status", [1, 3, 4, 7, 127, 255])
def test_failed_blkid_refuses_disk(
    empty: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    program = tmp_path / "bin" / "blkid"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nexit {status}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    assert isinstance(read_signature(empty.device_node or ""), OSError)
    assert why(empty, look=None) is Skip.UNKNOWN_CONTENT
