"""Run in a described machine's namespace: the daemon with nothing to do, and what that costs.

Arguments: the hbatune to start, and for how many seconds to look. Prints one JSON object.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STATUS = Path("/run/hbatune/status.json")


def spent(pid: int) -> float:
    """Return the CPU seconds of a process and of the children that it has waited for (proc(5))."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def counted(pid: int, name: str) -> int:
    """Return a number of /proc/PID/status."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    [line] = [line for line in lines if line.startswith(f"{name}:")]
    return int(line.split()[1])


def main() -> None:
    """Start it, let it come to rest, and look."""
    hbatune, seconds = sys.argv[1], float(sys.argv[2])
    for folder in ("/etc/hbatune", "/var/lib/hbatune"):
        Path(folder).mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", folder], check=True)
    Path("/etc/hbatune/hbatune.toml").write_text('profile = "oltp"\n')
    with (
        tempfile.TemporaryFile() as output,
        subprocess.Popen([hbatune, "daemon"], stdout=output) as daemon,
    ):
        while not STATUS.exists():
            if daemon.poll() is not None:
                raise SystemExit(f"the daemon ended with {daemon.returncode}")
            time.sleep(0.1)
        time.sleep(5)
        began, cpu = time.monotonic(), spent(daemon.pid)
        wakes = counted(daemon.pid, "voluntary_ctxt_switches")
        time.sleep(seconds)
        took = time.monotonic() - began
        status = json.loads(STATUS.read_bytes())
        result = {
            "seconds": round(took, 1),
            "cpu_share": (spent(daemon.pid) - cpu) / took,
            "wakeups": counted(daemon.pid, "voluntary_ctxt_switches") - wakes,
            "rss_kib": counted(daemon.pid, "VmRSS"),
            "endpoints": status["endpoints"],
            "passes": status["passes"],
        }
        daemon.terminate()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
