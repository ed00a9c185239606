"""Globs fit as fnmatch has it, whichever way is taken."""

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbatune.facts.names import matches_glob

LETTERS = st.text("aB*?[]!-\n", max_size=6)


@given(LETTERS, LETTERS)
def test_random_globs_match_fnmatch(text: str, glob: str) -> None:
    assert matches_glob(text, (glob,)) == fnmatchcase(text, glob)


@pytest.mark.parametrize("glob", ["", "*", "NVMe", "NV*", "*e", "N?Me", "NVMe*", "NVM[e]", "nvme"])
def test_usual_globs_match_fnmatch(glob: str) -> None:
    assert matches_glob("NVMe", (glob,)) == fnmatchcase("NVMe", glob)
