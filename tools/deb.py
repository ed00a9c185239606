"""Build the Debian package: ``python -m tools.deb FOLDER`` (`make deb`), without debhelper.

Any user can build it. It is for the Debian release of the build. hbatune is in a private directory,
together with the Python packages that this release does not have. Everything else, including fio,
is a dependency that `apt install` installs.
"""

import configparser
import gzip
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from hbatune import __version__
from tools import deb_policy, manual, sbom
from tools.wheel import CHECKOUT, BuildError, build_wheel

PRIVATE = Path("usr/lib/hbatune")
NEEDED = ("fio", "udev")
"""The required packages in addition to Python packages."""
_UNKNOWN = 946_684_800
"""2000-01-01, for a checkout without commits: older than any packed file."""
SUGGESTED = ("bpftrace", "irqbalance", "python3-prometheus-client")
_COMMAND = """\
#!/usr/bin/python3 -I
import sys

sys.path.insert(0, "/{private}")

from {module} import {function}  # noqa: E402

sys.exit({function}())
"""


@dataclass(frozen=True)
class Requirement:
    """A Python package that hbatune imports, and its minimum version."""

    name: str
    least: str

    @property
    def package(self) -> str:
        """Debian's name for it."""
        return f"python3-{self.name}"


def requirements() -> tuple[Requirement, ...]:
    """Return the Python packages that setup.cfg requires."""
    settings = configparser.ConfigParser()
    settings.read(CHECKOUT / "setup.cfg")
    wanted = []
    for line in settings["options"]["install_requires"].split():
        name, minimum = line.split(">=")
        wanted.append(Requirement(name, minimum))
    return tuple(wanted)


def in_this_release(wanted: Requirement) -> bool:
    """Return whether apt has a recent enough package. Raise ``BuildError`` if apt has no lists."""
    if _version_of("python3") is None:  # for example in an image without apt's lists
        subprocess.run(["apt-get", "update"], capture_output=True, check=False)
        if _version_of("python3") is None:
            raise BuildError("apt knows no packages: run `apt-get update` first, as root")
    version = _version_of(wanted.package)
    if version is None:
        return False
    command = ["dpkg", "--compare-versions", version, "ge", wanted.least]
    return subprocess.run(command, check=False).returncode == 0


def _version_of(package: str) -> str | None:
    command = ["apt-cache", "show", "--no-all-versions", package]
    output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    match = re.search(r"^Version: (\S+)$", output, re.MULTILINE)
    return match[1] if match else None


def version() -> str:
    """Return the package's version. It is higher for later commits, so apt upgrades."""
    committed = _last_commit()
    if committed is None:
        return __version__
    return f"{__version__}+{datetime.fromtimestamp(committed, UTC):%Y%m%d%H%M%S}"


def _last_commit() -> int | None:
    """Return the time of the last commit in seconds since the epoch, or None if it is unknown.

    A directory without git, or of another user, is an unpacked release.
    """
    command = ["git", "-C", str(CHECKOUT), "log", "-1", "--format=%ct"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return int(done.stdout) if done.returncode == 0 else None


def epoch() -> str:
    """Return the time of every file of the package (reproducible-builds.org).

    The same commit produces the same package, byte by byte, on the same release.
    """
    return os.environ.get("SOURCE_DATE_EPOCH") or str(_last_commit() or _UNKNOWN)


def build(folder: Path) -> Path:
    """Build the package into ``folder``, replace earlier packages there, and return its path.

    Raise ``BuildError`` if the build fails.
    """
    wanted = requirements()
    carried = [requirement for requirement in wanted if not in_this_release(requirement)]
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch) / "tree"
        tree.mkdir(mode=0o755)
        add_program(tree, Path(scratch))
        for requirement in carried:
            _carry(tree, requirement)
        _add_pages(tree, carried)
        compiled = any(tree.rglob("*.so"))
        architecture = _architecture() if compiled else "all"
        control = _control(wanted, carried, architecture, compiled=compiled)
        _add_control(tree, control)
        package = _packed(tree, folder, f"hbatune_{version()}_{architecture}.deb")
    _add_bill(package, [requirement.name for requirement in carried])
    return package


def _add_bill(package: Path, carried: Sequence[str]) -> None:
    """Write the bill of materials next to the package."""
    words = ["dpkg-deb", "--field", str(package), "Depends"]
    output = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    needed = list(dict.fromkeys(dependency.split()[0] for dependency in output.split(",")))
    bill = sbom.text(version(), int(epoch()), carried, needed)
    write(package.with_suffix(".cdx.json"), bill.encode())


def add_program(tree: Path, scratch: Path) -> None:
    """Unpack a wheel of the checkout into its private directory in ``tree``, add the command."""
    wheel = build_wheel(scratch)
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(tree / PRIVATE)
    (entries,) = (tree / PRIVATE).glob("*.dist-info/entry_points.txt")
    points = configparser.ConfigParser()
    points.read(entries)
    module, function = points["console_scripts"]["hbatune"].split(":")
    _drop_licences(tree / PRIVATE)
    command = _COMMAND.format(private=PRIVATE, module=module, function=function)
    write(tree / "usr/bin/hbatune", command.encode(), mode=0o755)


def _carry(tree: Path, wanted: Requirement) -> None:
    """Copy a Python package of this environment, with its metadata, next to hbatune."""
    distribution = importlib.metadata.distribution(wanted.name)
    for file in distribution.files or ():
        if ".." not in file.parts and "__pycache__" not in file.parts:
            target = tree / PRIVATE / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(Path(str(file.locate())), target)
    _drop_licences(tree / PRIVATE)


def _drop_licences(private: Path) -> None:
    """Remove the licence texts that ``copyright`` contains, as Debian requires."""
    for folder in private.glob("*.dist-info/licenses"):
        shutil.rmtree(folder)


def _add_pages(tree: Path, carried: Sequence[Requirement]) -> None:
    for name, text in manual.files().items():
        path, content = _place(name), text.encode()
        if name.endswith(".8"):
            content = gzip.compress(content, mtime=0)
        write(tree / path, content)
    names = [requirement.name for requirement in carried]
    for path, content in deb_policy.files(version(), int(epoch()), names).items():
        write(tree / path, content)
    for page in (CHECKOUT / "README.md", *sorted((CHECKOUT / "docs").glob("*.md"))):
        write(tree / deb_policy.DOCUMENTATION / page.relative_to(CHECKOUT), page.read_bytes())


def _place(name: str) -> Path:
    """Return Debian's path of a man page or a completion, by its name."""
    if name.endswith(".8"):
        return Path(f"usr/share/man/man8/{name}.gz")
    if name.endswith(".bash"):
        return Path(f"usr/share/bash-completion/completions/{name.removesuffix('.bash')}")
    if name.endswith(".fish"):
        return Path(f"usr/share/fish/vendor_completions.d/{name}")
    return Path(f"usr/share/zsh/vendor-completions/{name}")


def _control(
    wanted: Sequence[Requirement],
    carried: Sequence[Requirement],
    architecture: str,
    *,
    compiled: bool,
) -> str:
    major, minor = sys.version_info[:2]
    depends = ["python3 (>= 3.11)", *NEEDED]
    if compiled:  # only for this Python version
        depends[0] = f"python3 (>= {major}.{minor}), python3 (<< {major}.{minor + 1}), libc6"
    depends += [
        f"{requirement.package} (>= {requirement.least})"
        for requirement in wanted
        if requirement not in carried
    ]
    fields = {
        "Package": "hbatune",
        "Version": version(),
        "Architecture": architecture,
        "Maintainer": deb_policy.maintainer(),
        "Section": "admin",
        "Priority": "optional",
        "Depends": ", ".join(depends),
        "Suggests": ", ".join(SUGGESTED),
        "Description": DESCRIPTION,
    }
    return "".join(f"{name}: {value}\n" for name, value in fields.items())


DESCRIPTION = """\
tunes storage adapters, proves that it helped, and puts all back
 hbatune looks at the storage adapters of a machine, compares their settings
 with a profile, writes what differs, and measures what came of it.
 .
 It changes nothing by itself: `hbatune diff --profile oltp` shows what it would
 change, `hbatune install --profile oltp` keeps a profile from boot on. Removing
 the package puts every value back."""


def _add_control(tree: Path, control: str) -> None:
    used = sum(path.lstat().st_size for path in tree.rglob("*") if not path.is_dir())
    text = f"{control}Installed-Size: {used // 1024 + 1}\n"
    write(tree / "DEBIAN/control", text.encode())
    write(tree / "DEBIAN/md5sums", deb_policy.sums(tree).encode())
    for name in deb_policy.SCRIPTS:
        script = (CHECKOUT / "packaging" / name).read_bytes()
        write(tree / "DEBIAN" / name, script, mode=0o755)


def set_modes(tree: Path) -> None:
    """Set the installed mode of every file and directory, ignoring the umask."""
    for path in (tree, *tree.rglob("*")):
        path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)


def _packed(tree: Path, folder: Path, name: str) -> Path:
    set_modes(tree)
    folder.mkdir(parents=True, exist_ok=True)
    for before in (*folder.glob("hbatune_*.deb"), *folder.glob("hbatune_*.cdx.json")):
        before.unlink()
    target = folder / name
    done = subprocess.run(
        ["dpkg-deb", "--root-owner-group", "-Zxz", "--build", str(tree), str(target)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env={**os.environ, "SOURCE_DATE_EPOCH": epoch()},
    )
    if done.returncode != 0:
        raise BuildError(f"dpkg-deb failed:\n{done.stdout}")
    return target


def _architecture() -> str:
    command = ["dpkg", "--print-architecture"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def write(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Write a file of the package and create its parent directories."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(mode)


def main() -> int:
    """Build the package into the named directory, and print how to install it."""
    try:
        package = build(Path(sys.argv[1]))
    except BuildError as error:
        print(f"deb: {error}", file=sys.stderr)
        return 1
    shown_path = os.path.relpath(package)
    print(f"deb: {shown_path} is built. To install it, as root: apt install ./{shown_path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
