"""The guests' root disks, made by mmdebstrap and kept in the cache.

Debian 12's root has two kernels, Debian 13's the newest one of its backports (newest.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.lab.cache import cache_folder, cached, digest
from tests.lab.debian import SUITE, archives, backports, run
from tests.lab.ext4 import pack
from tests.lab.newest import SUITE as NEWEST_SUITE
from tests.lab.newest import require_release, series_of
from tests.lab.problem import gigabytes, require_room
from tests.lab.progress import note, step
from tests.lab.python import GuestPython, keep_python

RECIPE = Path(__file__).parent / "rootfs"
PYTHON = Path(__file__).parent / "python.py"
DEBIAN_12_KERNELS = ("6.1", "6.12")
DISK_BYTES = 3 << 30
KEPT_BYTES = 1_200_000_000
"""What an image takes in the cache at most; its disk is sparse."""
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

    def release(self, series: str) -> str:
        """What this kernel calls itself, such as ``6.12.107+deb12-amd64``."""
        return (self.folder / f"release-{series}").read_text()

    @property
    def python(self) -> GuestPython:
        """The guest's Python, which runs on this machine as well."""
        return GuestPython(self.folder / "python")


def debian_12_image() -> Image:
    """Return Debian 12's image of the present recipe; making it takes some minutes, and room.

    Raises LabError with the end of mmdebstrap's log where it cannot be made.
    """
    return Image(cached(f"image-{SUITE}", digest_recipe(), _make_debian_12))


def debian_13_image(release: str) -> Image:
    """Return Debian 13's image with this release of the kernel, out of its backports.

    Raises LabError as above, and where the archive has this release no more.
    """

    def make(folder: Path) -> None:
        require_release(release)
        # By the name of the archive, apt takes what the kernel depends on from there, too.
        packages = [f"linux-image-{release}/{NEWEST_SUITE}-backports"]
        sources = list(dict.fromkeys([*archives(NEWEST_SUITE), *backports(NEWEST_SUITE)]))
        _make(folder, [series_of(release)], NEWEST_SUITE, packages, sources)

    return Image(cached(f"image-{NEWEST_SUITE}", f"{release}_{digest_recipe()}", make))


def list_releases() -> list[str]:
    """Return the kernels of Debian 13 that the cache has an image of."""
    prefix, suffix = f"image-{NEWEST_SUITE}-", f"_{digest_recipe()}"
    images = cache_folder().glob(f"{prefix}*{suffix}")
    return [path.name.removeprefix(prefix).removesuffix(suffix) for path in images]


def _make_debian_12(folder: Path) -> None:
    packages = ["linux-image-amd64", "linux-image-6.12-amd64"]
    _make(folder, DEBIAN_12_KERNELS, SUITE, packages, archives())


def digest_recipe() -> str:
    """Return a short name for exactly what images are made of now."""
    recipe = [Path(__file__), PYTHON, *sorted(path for path in RECIPE.iterdir() if path.is_file())]
    return digest(part for path in recipe for part in (path.name.encode(), path.read_bytes()))


def _make(
    folder: Path, kernels: Sequence[str], suite: str, packages: list[str], sources: list[str]
) -> None:
    root = folder / "root"
    require_room(cache_folder(), MAKING_BYTES, "the virtual machine's image")
    note(
        f"lab: the virtual machine's image takes {gigabytes(KEPT_BYTES)} in {cache_folder()}, "
        f"{gigabytes(MAKING_BYTES)} while it is made"
    )
    names = " and ".join(kernels)
    with step(f"lab: making the image with Linux {names} (once; 2 to 5 minutes)"):
        log = folder / "log"
        run(_mmdebstrap(root, suite, packages, sources), log)
        for series in kernels:
            (version,) = (root / "lib" / "modules").glob(f"{series}.*")
            for kind, name in (("vmlinuz", "vmlinuz"), ("lab-initrd", "initrd")):
                boot_file = root / "boot" / f"{kind}-{version.name}"
                boot_file.rename(folder / f"{name}-{series}")
            (folder / f"release-{series}").write_text(version.name)
        keep_python(root, folder / "python")
        pack(root, folder / "root.img", DISK_BYTES)
        run(["rm", "-rf", "--one-file-system", str(root)], log)


def _mmdebstrap(root: Path, suite: str, packages: list[str], sources: list[str]) -> list[str]:
    return [
        *("env", "INITRD=No", "mmdebstrap", "--mode=root", "--variant=minbase"),
        *("--format=directory", f"--include={','.join([*packages, *_lines('packages.txt')])}"),
        "--aptopt=APT::Install-Recommends false",
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in _lines("excluded.txt")),
        f"--customize-hook='{RECIPE / 'customize.sh'}' \"$1\" '{RECIPE}'",
        *(suite, str(root), *sources),
    ]


def _lines(name: str) -> list[str]:
    text = (RECIPE / name).read_text()
    return [line for line in text.splitlines() if line and not line.startswith("#")]
