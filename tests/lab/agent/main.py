"""Runs in the guest, as root, under lab.service: does the job, reports, and switches off."""

import base64
import fcntl
import io
import json
import os
import struct
import subprocess
import tarfile
import termios
from pathlib import Path
from typing import Any

from tests.lab.agent import boots
from tests.lab.agent.port import Port

JOB = Path("/job")
AGENT = Path(__file__).parent
ARTIFACTS = Path("/run/lab/artifacts")
TERMINAL = "/dev/ttyS2"
CHUNK = 3 << 16
FRESH = Path("/var/lab/fresh.snap")
"""A snapshot of the first boot, taken before any test wrote something."""


def run_tests(job: dict[str, Any]) -> int:
    """Run the selected guest tests; their results go to the host as they come (report.py)."""
    command = [
        *("/usr/bin/python3", "-m", "pytest", "-c", str(AGENT / "pytest.ini")),
        *("--rootdir", str(JOB), "-p", "tests.lab.agent.report", *job["selected"]),
    ]
    environment = {**os.environ, **job["environment"], "PYTHONPATH": str(JOB)}
    if any("test_forecast" in test for test in job["selected"]) and not FRESH.exists():
        subprocess.run(["hbatune", "snapshot", str(FRESH)], stdout=subprocess.DEVNULL, check=True)
    return subprocess.run(command, cwd=JOB, env=environment, check=False).returncode


def run_terminal(job: dict[str, Any]) -> int:
    """Run bash on the third serial port, a terminal as wide as the host's."""
    terminal = os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY)
    size = struct.pack("HHHH", job["lines"], job["columns"], 0, 0)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, size)
    shell = ["/bin/bash", *job["arguments"]]
    if job["arguments"]:  # a script: nobody types, and its output goes on to another terminal
        settings = termios.tcgetattr(terminal)
        settings[1] &= ~termios.OPOST
        termios.tcsetattr(terminal, termios.TCSANOW, settings)
    else:  # job control
        shell = ["setsid", "--ctty", "--wait", *shell]
    done = subprocess.run(
        shell,
        cwd="/root",
        env={**os.environ, **job["environment"], "HOME": "/root", "LANG": "C.UTF-8"},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        check=False,
    )
    if job["arguments"]:
        termios.tcdrain(terminal)
    return done.returncode


def send_artifacts(port: Port) -> None:
    """Send what the job left in /run/lab/artifacts."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        tar.add(ARTIFACTS, arcname=".")
    for start in range(0, len(packed.getvalue()), CHUNK):
        part = packed.getvalue()[start : start + CHUNK]
        port.send("artifacts", data=base64.b64encode(part).decode())


def main() -> None:
    """Do the job that job.json names."""
    job = json.loads((JOB / "job.json").read_text())
    subprocess.run(["udevadm", "settle", "--timeout=120"], check=False)
    port = Port()
    if not boots.first():
        job["selected"] = boots.load_remaining_tests()
        if not job["selected"]:
            return power_off()  # after a panic: the host sees the console's last words
        if not boots.take_request():
            port.send("panicked")
    ARTIFACTS.mkdir(parents=True)
    port.send("ready", uptime=float(Path("/proc/uptime").read_text().split()[0]))
    code = run_tests(job) if job["kind"] == "tests" else run_terminal(job)
    if code == boots.REBOOT:
        port.send("rebooting")
        subprocess.run(["systemctl", "reboot"], check=True)
        return None
    send_artifacts(port)
    port.send("done", code=code)
    return power_off()


def power_off() -> None:
    """End the machine. Not by systemctl: a disk that some tests leave hanging would hold it up."""
    Path("/proc/sysrq-trigger").write_text("o")


if __name__ == "__main__":
    main()
