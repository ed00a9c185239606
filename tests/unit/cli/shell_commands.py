"""The installed command, run by a shell."""

import os
import subprocess
import sys

HBATUNE = (sys.executable, "-m", "hbatune")


def shell(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script in which "$@" is hbatune."""
    return subprocess.run(
        ["bash", "-c", script, "bash", *HBATUNE],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
