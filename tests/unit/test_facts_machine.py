"""Facts that cannot be read: an error with a reason, or nothing."""

import errno
import os
from pathlib import Path

import pytest

from hbatune.facts import assembly
from hbatune.facts.assembly import BootUnknownError
from hbatune.facts.families import family_named
from hbatune.facts.model import Missing, Reason
from hbatune.facts.vectors import read_vectors


def test_unreadable_boot_id_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembly, "_BOOT_ID", str(tmp_path))
    with pytest.raises(BootUnknownError, match="cannot be read: Is a directory"):
        assembly.read_boot_id()


def test_unreadable_memory_is_zero(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembly, "_MEMINFO", str(tmp_path))
    assert assembly._read_memory() == 0


def test_unreadable_interrupts_yield_no_vectors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "irq").write_text("17")

    def found() -> int:
        model, queues = family_named("mpt3sas").interrupts, Missing(Reason.ABSENT)
        return len(
            read_vectors("a", model, str(tmp_path), (), {}, hw_queues=queues, modes_tell=True)
        )

    assert found() == 1

    def refuse(path: str) -> list[str]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr("os.listdir", refuse)
    assert found() == 0
