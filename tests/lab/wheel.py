"""hbatune as its users install it: the wheel, with its dependencies, in a folder for the guest."""

import compileall
import configparser
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.lab.cache import cached, digest
from tests.lab.problem import LabError
from tests.lab.progress import step

CHECKOUT = Path(__file__).resolve().parents[2]
# Where Debian's Python looks for what pip installed as root; the guest's image links it here.
GUEST_SITE = "/usr/local/lib/python3.11/dist-packages"


def build_wheel(folder: Path) -> Path:
    """Build hbatune's wheel into ``folder`` and return it.

    From a copy of the checkout, because setuptools takes what an earlier build left behind.
    """
    with tempfile.TemporaryDirectory() as copy:
        source = Path(copy) / "hbatune"
        shutil.copytree(
            CHECKOUT,
            source,
            symlinks=True,
            ignore=shutil.ignore_patterns(
                ".*", "build", "dist", "tests", "*.egg-info", "__pycache__"
            ),
        )
        _pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(source))
    (wheel,) = folder.glob("hbatune-*.whl")
    return wheel


def install(job: Path) -> None:
    """Put hbatune and its dependencies into ``job/site`` and its command into ``job/bin``."""
    with step("lab: building and installing the wheel"), tempfile.TemporaryDirectory() as scratch:
        wheel = build_wheel(Path(scratch))
        own = Path(scratch) / "own"
        _pip("install", "--no-deps", "--no-compile", "--target", str(own), str(wheel))
        shutil.copytree(_dependencies(), job / "site")
        (job / "bin").mkdir()
        for script in sorted((own / "bin").iterdir()):
            _copy_script(script, job / "bin" / script.name)
        shutil.rmtree(own / "bin")
        _compile(own)
        shutil.copytree(own, job / "site", dirs_exist_ok=True)


def _dependencies() -> Path:
    settings = configparser.ConfigParser()
    settings.read(CHECKOUT / "setup.cfg")
    requirements = settings["options"]["install_requires"].split()

    def make(folder: Path) -> None:
        _pip("install", "--no-compile", "--target", str(folder), *requirements)
        shutil.rmtree(folder / "bin", ignore_errors=True)
        _compile(folder)

    return cached("dependencies", digest(word.encode() for word in requirements), make)


def _compile(folder: Path) -> None:
    """Compile everything: the guest is too slow to do it, and its tracebacks need its paths."""
    if not compileall.compile_dir(folder, quiet=2, stripdir=str(folder), prependdir=GUEST_SITE):
        raise LabError(f"not everything in {folder} compiles")


def _copy_script(script: Path, target: Path) -> None:
    _, body = script.read_text().split("\n", 1)
    target.write_text(f"#!/usr/bin/python3\n{body}")
    target.chmod(0o755)


def _pip(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise LabError(f"pip {arguments[0]} failed:\n{done.stdout}")
