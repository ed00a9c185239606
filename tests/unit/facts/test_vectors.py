"""Tests of hbatune/facts/vectors.py."""

import errno
import os
from pathlib import Path

import pytest

from hbatune.facts import vectors
from hbatune.facts.vectors import read_vectors
from tests.unit.machines import adapter


def test_unreadable_interrupts_yield_no_vectors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "irq").write_text("17")

    def count_vectors() -> int:
        return len(read_vectors(adapter(), str(tmp_path), (), {}, modes_tell=True))

    assert count_vectors() == 1

    def refuse(path: str) -> list[str]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr("os.listdir", refuse)
    assert count_vectors() == 0


def test_affinity_hint_is_a_mask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "_IRQS", str(tmp_path))
    function = tmp_path / "function"
    hints = {30: "00000000,0000000c", 31: "0", 32: "none"}
    for irq, hint in hints.items():
        (function / "msi_irqs").mkdir(parents=True, exist_ok=True)
        (function / "msi_irqs" / str(irq)).touch()
        (tmp_path / str(irq)).mkdir()
        (tmp_path / str(irq) / "affinity_hint").write_text(f"{hint}\n")
    read = read_vectors(adapter(), str(function), (), {}, modes_tell=True)
    assert {vector.irq: vector.hint for vector in read} == {30: (2, 3), 31: (), 32: ()}
