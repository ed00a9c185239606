"""The licence of each file is plain: REUSE.toml, the headers and LICENSES say the same."""

import re
import subprocess
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[3]
_TAG = "-".join(("SPDX", "License", "Identifier"))  # in one word it would be this file's own
_HEADER = re.compile(rf"{_TAG}: (\S+)")


def annotated(name: str) -> str | None:
    """Return the licence of a file by REUSE.toml: the last table whose path fits counts."""
    found = None
    for table in tomllib.loads((CHECKOUT / "REUSE.toml").read_text())["annotations"]:
        paths = [table["path"]] if isinstance(table["path"], str) else table["path"]
        if any(fnmatchcase(name, path) for path in paths):
            found = table[_TAG]
    return found


def files() -> list[str]:
    """Return the checkout's files; git tells them from what was built."""
    words = ["git", "-C", str(CHECKOUT), "ls-files", "-z"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip("not a checkout")
    return [name for name in done.stdout.split("\0") if name and (CHECKOUT / name).is_file()]


def test_headers_match_licence_table() -> None:
    for name in files():
        try:
            head = (CHECKOUT / name).read_text()[:1000]
        except UnicodeDecodeError:
            continue
        said = _HEADER.search(head)
        assert said is None or said[1] == annotated(name), name


def test_licence_texts_match_use() -> None:
    used = {annotated(name) for name in files()}
    assert used == {path.stem for path in (CHECKOUT / "LICENSES").iterdir()}


def test_only_emulators_are_gpl() -> None:
    assert annotated("tests/lab/mpi3mr/controller.c") == "GPL-2.0-or-later"
    assert annotated("hbatune/cli/main.py") == "Apache-2.0"
    assert (CHECKOUT / "LICENSE").read_text() == (CHECKOUT / "LICENSES/Apache-2.0.txt").read_text()
