"""Ten thousand mutants of every kind of file that is read: a value or a message, never more.

A million of them are in ``tests/soak``.
"""

from pathlib import Path

import pytest

from tests.mutants.kinds import KINDS, counted

MUTANTS = 10_000
_PARTS = 10


@pytest.mark.parametrize("part", range(_PARTS))
def test_mutated_files_crash_no_reader(tmp_path: Path, part: int) -> None:
    each = MUTANTS // _PARTS
    counts, wrong = counted(range(part * each, (part + 1) * each), tmp_path)
    assert not wrong, "\n\n".join(f"seed {seed}, {kind}: {text}" for seed, kind, text in wrong[:5])
    # Mutants that all are refused, or of a kind that never comes, would show nothing.
    assert {f"{kind}, taken" for kind in KINDS} <= counts.keys()
    assert min(counts["snapshot, taken"], counts["snapshot, refused"]) > each // 20
