"""The daemon asks for systemd's Python bindings, not for any folder of that name."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

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
    with pytest.raises(UsageError) as caught:
        require()
    assert "python3-systemd" in (caught.value.hint or "")
