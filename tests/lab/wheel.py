"""hbatune as its users install it: the wheel, with its dependencies, in a folder for the guest."""

import configparser
import shutil
import tempfile
from pathlib import Path

from tests.lab.cache import cached, digest
from tests.lab.problem import LabError
from tests.lab.progress import step
from tests.lab.python import GuestPython
from tools.wheel import BuildError, build_wheel, pip

CHECKOUT = Path(__file__).resolve().parents[2]


def install(job: Path, python: GuestPython) -> None:
    """Put hbatune and its dependencies into ``job/site`` and its command into ``job/bin``.

    Both are compiled for the guest's Python. Raises LabError where something cannot be built,
    downloaded or compiled.
    """
    with step("lab: building and installing the wheel"), tempfile.TemporaryDirectory() as scratch:
        try:
            _install(job, python, Path(scratch))
        except BuildError as error:
            raise LabError(str(error)) from error


def _install(job: Path, python: GuestPython, scratch: Path) -> None:
    wheel = build_wheel(scratch)
    wheel_folder = scratch / "own"
    pip("install", "--no-deps", "--no-compile", "--target", str(wheel_folder), str(wheel))
    shutil.copytree(_dependencies(python), job / "site")
    (job / "bin").mkdir()
    for script in sorted((wheel_folder / "bin").iterdir()):
        _copy_script(script, job / "bin" / script.name)
    shutil.rmtree(wheel_folder / "bin")
    python.compile(wheel_folder)
    shutil.copytree(wheel_folder, job / "site", dirs_exist_ok=True)


def _dependencies(python: GuestPython) -> Path:
    settings = configparser.ConfigParser()
    settings.read(CHECKOUT / "setup.cfg")
    requirements = settings["options"]["install_requires"].split()
    platform = _platform(python.version)

    def make(folder: Path) -> None:
        pip("install", "--no-compile", "--target", str(folder), *platform, *requirements)
        shutil.rmtree(folder / "bin", ignore_errors=True)
        python.compile(folder)

    parts = (*platform, *requirements)
    return cached("dependencies", digest(part.encode() for part in parts), make)


def _platform(version: str) -> tuple[str, ...]:
    """Return pip's options for what runs in the guest, whatever Python this machine has."""
    return (
        *("--python-version", version, "--implementation", "cp"),
        *("--abi", f"cp{version.replace('.', '')}"),
        *("--platform", "manylinux_2_28_x86_64", "--platform", "manylinux2014_x86_64"),
        "--only-binary=:all:",
    )


def _copy_script(script: Path, target: Path) -> None:
    _, body = script.read_text().split("\n", 1)
    target.write_text(f"#!/usr/bin/python3\n{body}")
    target.chmod(0o755)
