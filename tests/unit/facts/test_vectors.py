"""Tests of hbatune/facts/vectors.py."""

import errno
import os
from pathlib import Path

import pytest

from hbatune.facts.families import family_named
from hbatune.facts.model import Missing, Reason
from hbatune.facts.vectors import read_vectors


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
