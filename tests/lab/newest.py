"""The newest kernel of Debian 13's backports, and the last one with which all tests passed.

``newest-kernel.txt`` names the latter. A developer's machine tests what the archive has now, and CI
the named release, so that a new backport breaks no unrelated change.
"""

import os
import re
import subprocess
import tempfile
from pathlib import Path

from tests.lab.debian import backports
from tests.lab.problem import LabError

SUITE = "trixie"
LAST_GOOD = Path(__file__).with_name("newest-kernel.txt")
_PACKAGE = re.compile(r"\blinux-image-(\d[^\s,()]*-amd64)\b")


class NoArchive(LabError):
    """The archive of kernels does not answer."""


def load_last_good() -> str:
    """Return the release that all tests passed with, such as ``7.3.4+deb13-amd64``."""
    return LAST_GOOD.read_text().strip()


def is_last_good_wanted() -> bool:
    """Whether ``HBATUNE_LAB_NEWEST=last-good`` asks for that release, as `.ci/run` does."""
    return os.environ.get("HBATUNE_LAB_NEWEST") == "last-good"


def series_of(release: str) -> str:
    """Return the series of a release, which is the parameter of the tests, such as ``7.3``."""
    return ".".join(release.split(".")[:2])


def query_newest() -> str:
    """Ask the archive for the release that ``linux-image-amd64`` of the backports depends on.

    Raises NoArchive if it does not answer.
    """
    depends = _query_archive("show", "linux-image-amd64")
    releases = _PACKAGE.findall(depends)
    if not releases:
        raise NoArchive(f"no kernel is found in the backports of {SUITE}: {depends.strip()}")
    return str(releases[0])


def require_release(release: str) -> None:
    """Raise LabError, with both releases, if the archive does not have this one any more."""
    packages = _query_archive("pkgnames", f"linux-image-{release}").split()
    if f"linux-image-{release}" not in packages:
        raise LabError(
            f"{LAST_GOOD.name} names the kernel {release}, which the archive has no more; it has "
            f"{query_newest()}: run `make test` with that one, and name it there if all tests pass"
        )


def _query_archive(*command: str) -> str:
    """Run apt-cache on the lists of the backports alone; this machine's lists stay as they are."""
    with tempfile.TemporaryDirectory() as folder:
        sources = Path(folder) / "sources.list"
        sources.write_text("\n".join(backports(SUITE)) + "\n")
        for name in ("lists", "cache"):
            (Path(folder) / name / "partial").mkdir(parents=True)
        options = [
            *("-o", f"Dir::Etc::SourceList={sources}", "-o", "Dir::Etc::SourceParts=/dev/null"),
            *("-o", f"Dir::State::Lists={folder}/lists", "-o", f"Dir::Cache={folder}/cache"),
            *("-o", "Dir::State::Status=/dev/null", "-o", "APT::Architecture=amd64"),
            *("-o", "Acquire::Languages=none", "-o", "APT::Sandbox::User=root"),
        ]
        try:
            subprocess.run(
                ["apt-get", *options, "-o", "APT::Update::Error-Mode=any", "update"],
                check=True,
                capture_output=True,
                text=True,
            )
            words = ["apt-cache", *options, *command]
            return subprocess.run(words, check=True, capture_output=True, text=True).stdout
        except FileNotFoundError as error:
            raise NoArchive(f"the archive of kernels is not asked: {error}") from error
        except subprocess.CalledProcessError as error:
            raise NoArchive(f"the archive of kernels does not answer: {error.stderr}") from error
