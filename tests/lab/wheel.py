"""hbatune as its users install it: the wheel, with its dependencies, in a folder for the guest."""

import configparser
import shutil
import tempfile
from pathlib import Path

from tests.lab.cache import cached, digest
from tests.lab.image import image
from tests.lab.problem import LabError
from tests.lab.progress import step
from tests.lab.python import VERSION
from tools.wheel import BuildError, build_wheel, pip

CHECKOUT = Path(__file__).resolve().parents[2]
# Where Debian's Python looks for what pip installed as root; the guest's image links it here.
GUEST_SITE = f"/usr/local/lib/python{VERSION}/dist-packages"
# What runs in the guest, whatever Python this machine has.
FOR_THE_GUEST = (
    *("--python-version", VERSION, "--implementation", "cp"),
    *("--abi", f"cp{VERSION.replace('.', '')}"),
    *("--platform", "manylinux_2_28_x86_64", "--platform", "manylinux2014_x86_64"),
    "--only-binary=:all:",
)


def install(job: Path) -> None:
    """Put hbatune and its dependencies into ``job/site`` and its command into ``job/bin``.

    Raises LabError where something cannot be built, downloaded or compiled.
    """
    with step("lab: building and installing the wheel"), tempfile.TemporaryDirectory() as scratch:
        try:
            _install(job, Path(scratch))
        except BuildError as error:
            raise LabError(str(error)) from error


def _install(job: Path, scratch: Path) -> None:
    wheel = build_wheel(scratch)
    wheel_folder = scratch / "own"
    pip("install", "--no-deps", "--no-compile", "--target", str(wheel_folder), str(wheel))
    shutil.copytree(_dependencies(), job / "site")
    (job / "bin").mkdir()
    for script in sorted((wheel_folder / "bin").iterdir()):
        _copy_script(script, job / "bin" / script.name)
    shutil.rmtree(wheel_folder / "bin")
    image().python.compile(wheel_folder, GUEST_SITE)
    shutil.copytree(wheel_folder, job / "site", dirs_exist_ok=True)


def _dependencies() -> Path:
    settings = configparser.ConfigParser()
    settings.read(CHECKOUT / "setup.cfg")
    requirements = settings["options"]["install_requires"].split()

    def make(folder: Path) -> None:
        pip("install", "--no-compile", "--target", str(folder), *FOR_THE_GUEST, *requirements)
        shutil.rmtree(folder / "bin", ignore_errors=True)
        image().python.compile(folder, GUEST_SITE)

    parts = (*FOR_THE_GUEST, *requirements)
    return cached("dependencies", digest(part.encode() for part in parts), make)


def _copy_script(script: Path, target: Path) -> None:
    _, body = script.read_text().split("\n", 1)
    target.write_text(f"#!/usr/bin/python3\n{body}")
    target.chmod(0o755)
