"""Build hbatune's wheel from the checkout, for the lab and for the RPM package."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]


class BuildError(Exception):
    """The error of a failed build, with pip's output."""


def pip(*arguments: str) -> None:
    """Run pip, which prints only errors. Raise ``BuildError`` if it fails."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise BuildError(f"pip {arguments[0]} failed:\n{done.stdout}")


def copy_checkout(target: Path, *excluded: str) -> None:
    """Copy the checkout without the files of git, of caches and of earlier builds."""
    ignored = shutil.ignore_patterns(
        *(".git*", ".venv", ".cache", ".hypothesis", ".*_cache", "__pycache__"),
        *("build", "dist", "*.egg-info", *excluded),
    )
    shutil.copytree(CHECKOUT, target, symlinks=True, ignore=ignored)


def build_wheel(folder: Path) -> Path:
    """Build hbatune's wheel into ``folder`` and return it. Raise ``BuildError`` if this fails.

    It is built from a copy of the checkout, because setuptools includes files of earlier builds.
    """
    with tempfile.TemporaryDirectory() as copy:
        source = Path(copy) / "hbatune"
        copy_checkout(source, "tests")
        pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(source))
    (wheel,) = folder.glob("hbatune-*.whl")
    return wheel
