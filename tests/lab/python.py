"""The guest's own Python, kept beside its image: compiles on this machine what the guest will run.

The guest is too slow to compile, and this machine may have another Python.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.lab.problem import LabError

_LIBRARIES = "usr/lib/x86_64-linux-gnu"
_LOADER = "ld-linux-x86-64.so.2"
_NEEDED = (_LOADER, "libc.so.6", "libm.so.6", "libz.so.1", "libexpat.so.1")
_UNUSED = ("test", "__pycache__", "ensurepip", "idlelib", "tkinter", "lib2to3")


def keep_python(root: Path, folder: Path) -> None:
    """Copy the interpreter, its libraries and its standard library out of the guest's root."""
    name = (root / "usr/bin/python3").readlink().name
    (folder / "bin").mkdir(parents=True)
    shutil.copy2(root / "usr/bin" / name, folder / "bin")
    for needed in _NEEDED:
        library_file = root / _LIBRARIES / needed
        shutil.copy2(
            library_file if library_file.exists() else root / "lib/x86_64-linux-gnu" / needed,
            folder,
        )
    library = f"lib/{name}"
    ignored = shutil.ignore_patterns(*_UNUSED)
    shutil.copytree(root / "usr" / library, folder / library, symlinks=True, ignore=ignored)


@dataclass(frozen=True)
class GuestPython:
    """The interpreter that ``keep_python`` has put into a folder."""

    folder: Path

    @property
    def version(self) -> str:
        """Its version, such as ``3.13``."""
        (program,) = (self.folder / "bin").iterdir()
        return program.name.removeprefix("python")

    @property
    def site(self) -> str:
        """Where Debian's Python looks for what pip installed as root; an image links it there."""
        return f"/usr/local/lib/python{self.version}/dist-packages"

    def compile(self, tree: Path) -> None:
        """Compile every module below ``tree``, which the guest sees at ``site``.

        Raises LabError where one does not compile.
        """
        # By its own loader: the libraries of this machine may be older or newer.
        command = [
            *(str(self.folder / _LOADER), "--library-path", str(self.folder)),
            *(str(self.folder / "bin" / f"python{self.version}"), "-s", "-m", "compileall", "-q"),
            *("-s", str(tree), "-p", self.site, str(tree)),
        ]
        done = subprocess.run(
            command,
            env={**os.environ, "PYTHONHOME": str(self.folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise LabError(f"not everything in {tree} compiles:\n{done.stdout}")
