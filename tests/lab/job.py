"""The job disk: everything that one boot of the guest gets from the host."""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.lab.ext4 import pack
from tests.lab.python import GuestPython
from tests.lab.wheel import CHECKOUT, install

AGENT = Path(__file__).parent / "agent"
BOOTS = Path(__file__).parent / "boots"  # what the forecast's tests compare the guests with
KERNEL = CHECKOUT / "tests" / "kernel"  # the model of the kernel's rules, held against the guests'
SPARE = 512 << 20  # bytes for what the guest writes there: Python's caches, fio's files


def tests_job(selected: Sequence[str]) -> dict[str, Any]:
    """Return the job that runs these guest tests, named as pytest names them.

    They see the host's ``HBATUNE_…`` variables.
    """
    ours = {name: value for name, value in os.environ.items() if name.startswith("HBATUNE_")}
    return {"kind": "tests", "selected": list(selected), "environment": ours}


def terminal_job(
    arguments: Sequence[str], size: os.terminal_size, *, colours: bool
) -> dict[str, Any]:
    """Return the job that runs bash with ``arguments`` on a terminal of this size.

    Without arguments it is a shell for a person.
    """
    return {
        "kind": "terminal",
        "arguments": list(arguments),
        "environment": {"TERM": "xterm-256color" if colours else "dumb"},
        "columns": size.columns,
        "lines": size.lines,
    }


class JobDisks:
    """Makes job disks in ``folder`` for guests with this Python; what they share is made once."""

    def __init__(self, folder: Path, python: GuestPython) -> None:
        self._folder = folder
        self._tree = folder / f"job-python{python.version}"
        if self._tree.exists():
            shutil.rmtree(self._tree)
        self._tree.mkdir(parents=True)
        install(self._tree, python)
        shutil.copy(AGENT / "start", self._tree / "start")
        boots_module = Path("tests", "recorded_boots.py")
        (self._tree / "tests").mkdir(exist_ok=True)
        shutil.copy(CHECKOUT / boots_module, self._tree / boots_module)
        for code in (AGENT, BOOTS, KERNEL, *sorted((CHECKOUT / "tests").rglob("guest"))):
            shutil.copytree(
                code,
                self._tree / code.relative_to(CHECKOUT),
                ignore=shutil.ignore_patterns("__pycache__"),
            )

    def make(self, name: str, job: Mapping[str, Any], files: Sequence[Path] = ()) -> Path:
        """Return a disk that carries ``job`` and ``files`` beside hbatune and the guest tests."""
        disk = self._folder / f"{name}.img"
        (self._tree / "job.json").write_text(json.dumps(job))
        for file in files:
            shutil.copy(file, self._tree / file.name)
        pack(self._tree, disk, _used(self._tree) * 5 // 4 + SPARE)
        return disk


def _used(tree: Path) -> int:
    blocks = (os.lstat(path).st_blocks for path in tree.rglob("*"))
    return sum(blocks) * 512
