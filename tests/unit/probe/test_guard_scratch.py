"""A file to probe: read and written for real, bounded, and gone however it ends."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hbatune.cli import main
from hbatune.errors import UsageError
from hbatune.probe import run
from hbatune.probe.guard import make_scratch_file
from hbatune.probe.result import Pattern, ProbeResult, Workload

MIB = 1 << 20
real_fio = pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    directory = tmp_path / "here"
    directory.mkdir()
    return directory


def test_scratch_file_is_unnamed(folder: Path) -> None:
    with make_scratch_file(folder, largest=4 * MIB, smallest=MIB) as file:
        assert list(folder.iterdir()) == []
        content = Path(file.path).read_bytes()
        assert len(content) == file.size == 4 * MIB
        assert bytes(4096) not in content
    assert not Path(file.path).exists()


@real_fio
@pytest.mark.parametrize("pattern", [Pattern.RANDOM_READ, Pattern.RANDOM_MIX])
def test_fio_probes_scratch_file(pattern: Pattern, folder: Path) -> None:
    with make_scratch_file(folder, largest=4 * MIB, smallest=MIB) as file:
        workload = Workload(pattern, ramp=0, runtime=0.2, reads=50)
        outcome = run.probe_file(str(folder), file.path, file.size, workload)
    assert isinstance(outcome, ProbeResult), outcome
    assert outcome.figures.ios > 0


def test_unusable_folder_is_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="too little"), make_scratch_file(folder, smallest=1 << 60):
        pytest.fail("there is not that much")
    with pytest.raises(UsageError, match="cannot hold"), make_scratch_file(folder / "none"):
        pytest.fail("there is no folder")


def test_killed_process_leaves_nothing(folder: Path) -> None:
    code = (
        "import sys, signal; from pathlib import Path\n"
        "from hbatune.probe.guard import make_scratch_file\n"
        f"with make_scratch_file(Path({str(folder)!r}), largest={4 * MIB}, smallest={MIB}):\n"
        "    print('ready', flush=True); signal.pause()"
    )
    running = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert running.stdout is not None
    assert running.stdout.readline() == b"ready\n"
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    running.stdout.close()
    assert list(folder.iterdir()) == []


def test_file_option_excludes_targets(folder: Path) -> None:
    assert main(["probe", "qd1", "sda", "--file", str(folder)]) == 2
    assert main(["probe", "qd1", "--file", str(folder / "none")]) == 2
