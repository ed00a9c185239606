"""Two runs of the lab in one checkout: the second is told, and the first is not disturbed."""

from pathlib import Path

import pytest

from tests.lab.alone import alone
from tests.lab.problem import LabError


def test_concurrent_run_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "lab"
    with alone(folder), pytest.raises(LabError, match="another run of the lab"), alone(folder):
        pytest.fail("both at once")
    with alone(folder):
        pass
