"""Snapshot files: what is written is read again, and anything else is refused with its reason."""

import contextlib
import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbatune.policy.profile import Exactly
from hbatune.snapshot import file
from hbatune.snapshot.file import SnapshotError, decode_snapshot, encode_snapshot, load_snapshot
from tests.unit.machines import machine
from tests.unit.profiles import profile
from tests.unit.snapshots import snapshot

WRITTEN = snapshot(machine(), profile(("scheduler", Exactly("none"))), rolled_back=("a",))
DATA = encode_snapshot(WRITTEN)


def altered(**changes: Any) -> bytes:
    document = {**json.loads(gzip.decompress(DATA)), **changes}
    return gzip.compress(json.dumps(document).encode(), mtime=0)


def test_snapshot_survives_round_trip(tmp_path: Path) -> None:
    (tmp_path / "host").write_bytes(DATA)
    assert load_snapshot(tmp_path / "host") == WRITTEN
    assert encode_snapshot(WRITTEN) == DATA


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty"),
        (b"hello", "not a snapshot"),
        (DATA[:-20], "truncated"),
        (DATA[:5], "truncated"),
        (DATA + b"more", "something follows"),
        (DATA[:40] + b"\0\0\0\0" + DATA[44:], "damaged"),
        (gzip.compress(b"[]", mtime=0), "not a snapshot"),
        (gzip.compress(b"[" * 100_000, mtime=0), "not a snapshot"),
        (gzip.compress(b'{"schema": "\xff"}', mtime=0), "not a snapshot"),
        (altered(schema="hbatune.plan/1"), "not a snapshot"),
        (altered(schema="hbatune.snapshot/2"), "has schema hbatune.snapshot/2"),
        (altered(machine={}), "makes no sense: Object missing required field `hostname`"),
        (altered(taken="today"), "makes no sense"),
        (altered(hbatune="1" * 4097), "length <= 4096"),
    ],
)
def test_invalid_snapshot_exits_2(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "host"
    path.write_bytes(data)
    with pytest.raises(SnapshotError) as error:
        load_snapshot(path)
    assert message in error.value.message
    assert str(path) in error.value.message
    assert error.value.exit_code == 2


def test_newer_schema_gives_hint() -> None:
    with pytest.raises(SnapshotError) as error:
        decode_snapshot(altered(schema="hbatune.snapshot/2"), Path("x"))
    assert error.value.hint == "use the hbatune that took it, or a newer one"


def test_oversized_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "host"
    path.write_bytes(DATA)
    monkeypatch.setattr(file, "MAX_FILE_BYTES", len(DATA) - 1)
    with pytest.raises(SnapshotError, match=r"larger than \d+ bytes"):
        load_snapshot(path)


def test_gzip_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "MAX_UNPACKED_BYTES", 1 << 20)
    with pytest.raises(SnapshotError, match="when unpacked"):
        decode_snapshot(gzip.compress(b" " * (2 << 20), mtime=0), Path("x"))


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path, message in (
        (tmp_path, "regular"),
        (tmp_path / "fifo", "regular"),
        (tmp_path / "none", "No such file"),
        (Path("/dev/null"), "regular"),
    ):
        with pytest.raises(SnapshotError, match=message):
            load_snapshot(path)


@given(st.binary(max_size=200), st.integers(0, len(DATA)), st.integers(0, 20))
def test_damage_is_detected_or_harmless(noise: bytes, at: int, cut: int) -> None:
    damaged = DATA[:at] + noise + DATA[at + cut :]
    with contextlib.suppress(SnapshotError):
        assert decode_snapshot(damaged, Path("x")) == WRITTEN
