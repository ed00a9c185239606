"""The daemon asks for systemd's Python bindings, not for any folder of that name."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

from hbatune.agent import service
from hbatune.agent.service import require
from hbatune.errors import UsageError

CHECKOUT = Path(__file__).resolve().parents[2]


def test_the_checkouts_folder_is_not_taken_for_the_bindings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Where the bindings are missing, `import systemd` finds the checkout's folder: a package
    # without contents. Where they are installed, Python takes them, wherever they are on its path.
    folder = ModuleType("systemd")
    folder.__path__ = [str(CHECKOUT / "systemd")]
    monkeypatch.setitem(sys.modules, "systemd", folder)
    with pytest.raises(UsageError):
        require()


def system_python(folder: Path, script: str) -> str:
    """Make a stand-in for the distribution's Python."""
    program = folder / "python3"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(program)


OWN = f"{sys.version_info[0]}.{sys.version_info[1]}"


@pytest.mark.parametrize(
    ("script", "problem", "remedy"),
    [
        ("exit 1", "are missing", "install the package python3-systemd"),
        ("echo 2.7", f"for Python 2.7, and hbatune runs with {OWN}", "install hbatune for"),
        (f"echo {OWN}", "does not see", f"venv --system-site-packages {sys.prefix}"),
    ],
)
def test_bindings_that_are_missing_are_told_from_those_that_are_not_seen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, problem: str, remedy: str
) -> None:
    monkeypatch.setattr(service, "SYSTEM_PYTHON", system_python(tmp_path, script))
    monkeypatch.setitem(sys.modules, "systemd", None)
    with pytest.raises(UsageError) as caught:
        require()
    assert problem in str(caught.value)
    assert remedy in (caught.value.hint or "")
    assert "pip install" not in (caught.value.hint or ""), "nobody guards that name"


def test_without_a_python_of_the_system_the_bindings_are_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(service, "SYSTEM_PYTHON", str(tmp_path / "none"))
    monkeypatch.setitem(sys.modules, "systemd", None)
    with pytest.raises(UsageError, match="are missing"):
        require()
