"""The guest's root disk with both Debian kernels, made by mmdebstrap and kept in the cache."""

from dataclasses import dataclass
from pathlib import Path

from tests.lab.cache import cache_folder, cached, digest
from tests.lab.debian import SUITE, archives, run
from tests.lab.ext4 import pack
from tests.lab.problem import gigabytes, require_room
from tests.lab.progress import note, step
from tests.lab.python import GuestPython, keep_python

RECIPE = Path(__file__).parent / "rootfs"
PYTHON = Path(__file__).parent / "python.py"
KERNELS = ("6.1", "6.12")
DISK_BYTES = 3 << 30
KEPT_BYTES = 1_200_000_000
"""What the image takes in the cache; its disk is sparse."""
MAKING_BYTES = 2_600_000_000
"""What it takes while it is made: the tree and what was downloaded beside the disk."""


@dataclass(frozen=True)
class Image:
    """A finished image: the root disk, and for each kernel what the machine boots."""

    folder: Path

    @property
    def root(self) -> Path:
        """The root disk, raw ext4 without a partition table."""
        return self.folder / "root.img"

    def kernel(self, series: str) -> Path:
        """The kernel of ``series``, such as ``6.12``."""
        return self.folder / f"vmlinuz-{series}"

    def initrd(self, series: str) -> Path:
        """The initramfs that goes with it."""
        return self.folder / f"initrd-{series}"

    @property
    def python(self) -> GuestPython:
        """The guest's Python, which runs on this machine as well."""
        return GuestPython(self.folder / "python")


def image() -> Image:
    """Return the image of the present recipe; making it takes some minutes, and room.

    Raises LabError with the end of mmdebstrap's log where it cannot be made.
    """
    recipe = [Path(__file__), PYTHON, *sorted(path for path in RECIPE.iterdir() if path.is_file())]
    parts = [part for path in recipe for part in (path.name.encode(), path.read_bytes())]
    return Image(cached("image", digest(parts), _make))


def _make(folder: Path) -> None:
    root = folder / "root"
    require_room(cache_folder(), MAKING_BYTES, "the virtual machine's image")
    note(
        f"lab: the virtual machine's image takes {gigabytes(KEPT_BYTES)} in {cache_folder()}, "
        f"{gigabytes(MAKING_BYTES)} while it is made"
    )
    with step("lab: making the image out of Debian's packages (once; 2 to 5 minutes)"):
        log = folder / "log"
        run(_mmdebstrap(root), log)
        for series in KERNELS:
            (version,) = (root / "lib" / "modules").glob(f"{series}.*")
            for kind, name in (("vmlinuz", "vmlinuz"), ("lab-initrd", "initrd")):
                boot_file = root / "boot" / f"{kind}-{version.name}"
                boot_file.rename(folder / f"{name}-{series}")
        keep_python(root, folder / "python")
        pack(root, folder / "root.img", DISK_BYTES)
        run(["rm", "-rf", "--one-file-system", str(root)], log)


def _mmdebstrap(root: Path) -> list[str]:
    packages = ",".join(_lines("packages.txt"))
    return [
        *("env", "INITRD=No", "mmdebstrap", "--mode=root", "--variant=minbase"),
        *("--format=directory", f"--include={packages}"),
        "--aptopt=APT::Install-Recommends false",
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in _lines("excluded.txt")),
        f"--customize-hook='{RECIPE / 'customize.sh'}' \"$1\" '{RECIPE}'",
        *(SUITE, str(root), *archives()),
    ]


def _lines(name: str) -> list[str]:
    text = (RECIPE / name).read_text()
    return [line for line in text.splitlines() if line and not line.startswith("#")]
