"""Ten thousand mutants of snapshots, and more of other files: a value or a message, never more.

A million snapshots are in ``tests/soak``.
"""

from pathlib import Path
from random import Random

import pytest

from tests.mutants.kinds import KINDS, counted
from tests.mutants.mutate import Source

MUTANTS = 17_000
_PARTS = 10


@pytest.mark.parametrize("part", range(_PARTS))
def test_mutated_files_crash_no_reader(tmp_path: Path, part: int) -> None:
    part_size = MUTANTS // _PARTS
    counts, wrong = counted(range(part * part_size, (part + 1) * part_size), tmp_path)
    assert not wrong, "\n\n".join(f"seed {seed}, {kind}: {text}" for seed, kind, text in wrong[:5])
    # Mutants that all are refused, or of a kind that never comes, would show nothing.
    assert {f"{kind}, taken" for kind in KINDS} <= counts.keys()
    assert min(counts["snapshot, taken"], counts["snapshot, refused"]) > part_size // 20
    assert counts["snapshot, taken"] + counts["snapshot, refused"] > 950


def test_mutants_depend_on_seed_only() -> None:
    source = Source(b'{"a": [1, {"b": "x"}], "c": {"d": [2, "y"]}}')
    mutants = [source.mutant(Random(seed)) for seed in range(2_000)]
    assert mutants == [source.mutant(Random(seed)) for seed in range(2_000)]
