"""Roots of Debian made by mmdebstrap, from the archives that this machine's apt uses."""

import subprocess
from pathlib import Path

from tests.lab.problem import LabError

SUITE = "bookworm"


def archives(suite: str = SUITE) -> list[str]:
    """Return the archives of packages to make a root from, as lines of sources.list.

    Those of this machine, which may be a mirror. A machine of another release, and one that has
    no security updates, where Debian 12's newer kernel is, gets Debian's own for what is missing.
    """
    debians = _debians(suite)
    machine_archives = _known(suite)
    if not machine_archives:
        return debians
    secure = any(f"{suite}-security" in line for line in machine_archives)
    return [*machine_archives, *(() if secure else debians[-1:])]


def backports(suite: str) -> list[str]:
    """Return the archives of a release's backports: those of this machine, or Debian's own."""
    suite = f"{suite}-backports"
    return _known(suite) or [f"deb http://deb.debian.org/debian {suite} main"]


def run(command: list[str], log: Path) -> None:
    """Run it to its end, its output appended to ``log``.

    Raises LabError with the end of the log where it fails.
    """
    with log.open("a") as output:
        running = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        code = running.wait()
    except KeyboardInterrupt:
        running.wait()  # it was interrupted as well, and has to leave its folder before that goes
        raise
    if code != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-30:])
        raise LabError(f"{' '.join(command[:3])} ... exited {code}:\n{tail}")


def _debians(suite: str) -> list[str]:
    """Return what mmdebstrap takes by itself."""
    return [
        f"deb http://deb.debian.org/debian {suite} main",
        f"deb http://deb.debian.org/debian {suite}-updates main",
        f"deb http://security.debian.org/debian-security {suite}-security main",
    ]


def _known(suite: str) -> list[str]:
    wanted = "$(ORIGIN)|$(CODENAME)|deb $(REPO_URI) $(RELEASE) $(COMPONENT)"
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", wanted, "Created-By: Packages"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    entries = (line.split("|") for line in listed.splitlines())
    return sorted(
        {
            line
            for origin, codename, line in entries
            if origin == "Debian" and codename.startswith(suite)
        }
    )
