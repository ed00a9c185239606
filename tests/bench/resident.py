"""Run in a described machine's namespace: what the daemon has in memory when it is idle.

Arguments: the hbatune to start. Prints one JSON object, in KiB: of the daemon's process, and the
share of the whole service, which is the daemon with the processes that wait for its next event.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench.events import memory, tree

STATUS = Path("/run/hbatune/status.json")
CONFIGURATION = """
profile = "oltp"
[daemon]
audit_seconds = 10
[watch]
interval_seconds = 1
counters_seconds = 3
"""
"""As by default, but sooner: an audit, and many samples of the watch."""
REST = 4.0
"""Seconds after the audit, for samples and for what it has left to be done."""
LIMIT = 300.0


def until_passed(daemon: subprocess.Popen[bytes], passes: int) -> Any:
    """Return the status once so many passes were made."""
    limit = time.monotonic() + LIMIT
    while not STATUS.exists() or (status := json.loads(STATUS.read_bytes()))["passes"] < passes:
        if daemon.poll() is not None or time.monotonic() > limit:
            raise SystemExit(f"no pass was made; the daemon's exit code is {daemon.returncode}")
        time.sleep(0.2)
    return status


def main(hbatune: str) -> None:
    """Start it, let it come to rest, and look."""
    for folder in ("/etc/hbatune", "/var/lib/hbatune"):
        Path(folder).mkdir(exist_ok=True)
    Path("/etc/hbatune/hbatune.toml").write_text(CONFIGURATION)
    with (
        tempfile.TemporaryFile() as output,
        subprocess.Popen([hbatune, "daemon"], stdout=output) as daemon,
    ):
        status = until_passed(daemon, 2)
        time.sleep(REST)
        processes = {pid: memory(pid) for pid in tree(daemon.pid)}
        daemon.terminate()
    results = {
        "rss_kib": processes[daemon.pid]["Rss"],
        "pss_kib": sum(process["Pss"] for process in processes.values()),
        "processes": len(processes),
        "written": status["written"],
        "open": len(status["open"]),
    }
    print(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1])
