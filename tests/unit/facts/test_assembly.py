"""Facts that cannot be read: an error with a reason, or nothing."""

from pathlib import Path

import pytest

from hbatune.facts import assembly
from hbatune.facts.assembly import BootUnknownError


def test_unreadable_boot_id_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembly, "_BOOT_ID", str(tmp_path))
    with pytest.raises(BootUnknownError, match="cannot be read: Is a directory"):
        assembly.read_boot_id()


def test_unreadable_memory_is_zero(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembly, "_MEMINFO", str(tmp_path))
    assert assembly._read_memory() == 0
