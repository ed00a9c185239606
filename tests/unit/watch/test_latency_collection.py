"""Collecting with a bpftrace that is a script of our own; the real one is in the lab."""

import shutil
import subprocess
from pathlib import Path

import pytest

from hbatune.errors import UsageError
from hbatune.policy.config import WatchConfig
from hbatune.render import render_template
from hbatune.watch import latency
from hbatune.watch.latency import CollectError, collect_latencies, load_latencies

PRINTS = """#!/bin/sh
printf '%s\\n' "$@" > "{folder}/argv"
env > "{folder}/environment"
echo '{{"type": "map", "data": {{"@latency": {{"8388608,400": 7}}}}}}'
echo '{{"type": "printf", "data": "end\\\\n"}}'
until [ -e "{folder}/state/latency.json" ]; do :; done
cp "{folder}/state/latency.json" "{folder}/copy.json"
exit 3
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a bpftrace that prints one interval and ends."""
    program = tmp_path / "bin/bpftrace"
    program.parent.mkdir()
    program.write_text(PRINTS.format(folder=tmp_path))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return tmp_path


def test_latency_file_exists_during_collection(fake: Path) -> None:
    file = fake / "state/latency.json"
    with pytest.raises(CollectError, match="ended with status 3"):
        collect_latencies(file, WatchConfig(latency_seconds=7, latency_keys=4096))
    [interval] = load_latencies(fake / "copy.json").intervals
    assert interval.counts == {"8:0": {400: 7}}
    assert not file.exists()
    assert file.parent.stat().st_mode & 0o777 == 0o711


def test_bpftrace_receives_interval_and_limits(fake: Path) -> None:
    with pytest.raises(CollectError):
        collect_latencies(
            fake / "state/latency.json", WatchConfig(latency_seconds=7, latency_keys=4096)
        )
    assert "interval:s:7" in (fake / "argv").read_text()
    environment = (fake / "environment").read_text().splitlines()
    assert "BPFTRACE_MAP_KEYS_MAX=4096" in environment
    assert "BPFTRACE_MAX_MAP_KEYS=4096" in environment


def test_missing_bpftrace_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="not installed"):
        collect_latencies(tmp_path / "latency.json", WatchConfig())


def test_unstartable_bpftrace_is_reported(fake: Path) -> None:
    (fake / "bin/bpftrace").write_bytes(b"not a program")
    with pytest.raises(CollectError, match="bin/bpftrace cannot be started: Exec format") as caught:
        collect_latencies(fake / "state/latency.json", WatchConfig())
    assert "bpftrace --version" in (caught.value.hint or "")


def test_unwritable_file_is_reported(fake: Path) -> None:
    (fake / "state").write_text("in the way")
    with pytest.raises(CollectError, match=r"latency\.json cannot be written: "):
        collect_latencies(fake / "state/latency.json", WatchConfig())


def test_killed_bpftrace_reports_signal(fake: Path) -> None:
    (fake / "bin/bpftrace").write_text("#!/bin/sh\nkill -9 $$\n")
    with pytest.raises(CollectError, match="ended with signal 9") as caught:
        collect_latencies(fake / "state/latency.json", WatchConfig())
    assert "BTF" in (caught.value.hint or "")


def test_silent_bpftrace_is_ended(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "START_S", 0.1)
    monkeypatch.setattr(latency, "FRESH_INTERVALS", 0)
    (fake / "bin/bpftrace").write_text("#!/bin/sh\nexec sleep 1000\n")
    with pytest.raises(CollectError, match=r"bpftrace hangs: it printed nothing for 0\.1 s"):
        collect_latencies(fake / "state/latency.json", WatchConfig())


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_latency_unit_passes_systemd_analyze(tmp_path: Path) -> None:
    unit = tmp_path / "hbatune-latency.service"
    template = f"{unit.name}.j2"
    unit.write_text(render_template("systemd", template, executable="/usr/bin/env", at_home=False))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
