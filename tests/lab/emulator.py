"""The lab's own QEMU with the emulated adapters that it lacks, made once and kept in the cache.

A device model fits one QEMU only, so the lab brings its own: Debian 13's, on every machine. It
starts programs in a guest five times as fast as Debian 12's.
"""

import itertools
import shlex
from dataclasses import dataclass
from pathlib import Path

from tests.lab.cache import cache_folder, cached, digest
from tests.lab.debian import archives, run
from tests.lab.problem import gigabytes, require_room
from tests.lab.progress import note, step

LAB = Path(__file__).parent
SUITE = "trixie"
RECIPE = LAB / "tri_mode"
MODELS = (RECIPE, LAB / "mpi3mr", LAB / "mpt3sas", LAB / "ipr", LAB / "nvme")
PACKAGES = (
    *("dpkg-dev", "gcc", "libc6-dev", "libglib2.0-dev", "pkgconf", "python3-minimal"),
    *("qemu-system-x86", "xz-utils"),
)
KEPT_BYTES = 70_000_000
MAKING_BYTES = 1_600_000_000
"""What it takes while it is made: a root with a compiler, and QEMU's sources."""


@dataclass(frozen=True)
class Emulator:
    """A finished QEMU, which runs on any Linux: its loader and libraries are its own."""

    folder: Path

    @property
    def command(self) -> list[str]:
        """The words that begin its command line."""
        libraries = self.folder / "lib"
        return [
            *(str(libraries / "ld-linux-x86-64.so.2"), "--library-path", str(libraries)),
            *("--preload", str(self.folder / "adapters.so")),
            *(str(self.folder / "qemu-system-x86_64"), "-L", str(self.folder / "data")),
        ]


def emulator() -> Emulator:
    """Return the emulator of the present recipe; making it takes a minute or two, and room.

    Raises LabError with the end of the build's log where it cannot be made.
    """
    every = (path for model in MODELS for path in sorted(model.iterdir()))
    recipe = [path for path in every if path.suffix in {".c", ".h", ".sed", ".sh"}]
    names = (str(path.relative_to(LAB)).encode() for path in recipe)
    files = itertools.chain(*zip(names, map(Path.read_bytes, recipe), strict=True))
    words = map(str.encode, (SUITE, *PACKAGES))
    return Emulator(cached("emulator", digest([*words, *files]), _make))


def _make(folder: Path) -> None:
    require_room(cache_folder(), MAKING_BYTES, "the lab's QEMU, while it is made,")
    note(f"lab: QEMU takes {gigabytes(KEPT_BYTES)} in {cache_folder()}")
    with step("lab: building adapters that Debian's QEMU has not (once; 1 to 3 minutes)"):
        root, log = folder / "root", folder / "log"
        run(_mmdebstrap(root), log)
        (root / "build" / "emulator").rename(folder / "emulator")
        for part in (folder / "emulator").iterdir():
            part.rename(folder / part.name)
        (folder / "emulator").rmdir()
        run(["rm", "-rf", "--one-file-system", str(root)], log)


def _mmdebstrap(root: Path) -> list[str]:
    binary = archives(SUITE)
    recipe, models = shlex.quote(str(RECIPE)), shlex.join(map(str, MODELS))
    return [
        *("mmdebstrap", "--mode=root", "--variant=minbase", "--format=directory"),
        f"--include={','.join(PACKAGES)}",
        "--aptopt=APT::Install-Recommends false",
        *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "locale", "man")),
        '--customize-hook=mkdir --parents "$1/build/models"',
        f'--customize-hook=cp -r {models} "$1/build/models"',
        f'--customize-hook={recipe}/fetch.sh "$1"',
        '--customize-hook=chroot "$1" /build/models/tri_mode/build.sh',
        *(SUITE, str(root)),
        *binary,
        *(line.replace("deb ", "deb-src ", 1) for line in binary),
    ]
