"""A million mutants of snapshots, and more of other files: a value or a message, never more."""

import os
import tempfile
import time
from collections import Counter
from multiprocessing import get_context
from pathlib import Path

from tests.mutants.kinds import counted
from tests.soak.kept import save_results

MUTANTS = 1_700_000
_AT_ONCE = 500
_SHOWN = 20


def _run(first: int) -> tuple[Counter[str], list[tuple[int, str, str]]]:
    """Try some seeds, in a folder of their own."""
    with tempfile.TemporaryDirectory() as folder:
        return counted(range(first, first + _AT_ONCE), Path(folder))


def test_mutants_never_crash_readers() -> None:
    began, counts, wrong = time.monotonic(), Counter[str](), []
    with get_context("fork").Pool(os.cpu_count()) as pool:
        for part, failed in pool.imap_unordered(_run, range(0, MUTANTS, _AT_ONCE)):
            counts.update(part)
            wrong += failed
    save_results(
        "mutants of snapshots, histories and state files, each read as a command reads it",
        name="mutants",
        count=MUTANTS,
        seconds=round(time.monotonic() - began),
        mutants=dict(sorted(counts.items())),
        wrong=len(wrong),
        seeds=sorted(seed for seed, _, _ in wrong)[:_SHOWN],
    )
    assert not wrong, "\n\n".join(f"seed {seed}: {text}" for seed, _, text in wrong[:_SHOWN])
