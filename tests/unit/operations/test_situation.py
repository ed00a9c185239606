"""Tests of hbatune/operations/situation.py."""

from pathlib import Path

import pytest

from hbatune.operations import situation


def test_links_resolve_without_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(
        situation,
        "resolve_link",
        lambda name: {"/dev/mapper/mpatha": "dm-0", "/dev/disk/by-id/x": "sda"}.get(name, name),
    )
    names = ("mpatha", "/dev/mapper/mpatha", "x", "sdb", "/dev/sdb", "/dev/disk/by-id/y")
    assert [situation.resolve_target_name(name) for name in names] == [
        *("dm-0", "dm-0", "sda", "sdb", "/dev/sdb", "/dev/disk/by-id/y")
    ]
