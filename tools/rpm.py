"""Build the RPM package: ``python -m tools.rpm FOLDER`` (`make rpm`), as any user.

It has the content of the Debian package (``tools.deb``), but includes no Python package, because
Fedora has all of them. The build needs rpmbuild and the tools that build a wheel.
"""

import configparser
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from datetime import UTC, datetime
from pathlib import Path

from hbatune import __version__
from tools import manual
from tools.packaging import DOCUMENTATION, description, documentation, epoch, maintainer
from tools.wheel import CHECKOUT, BuildError, build_wheel

_PRIVATE = Path("usr/lib/hbatune")
NEEDED = ("fio", "systemd-udev")
SUGGESTED = ("irqbalance", "python3-prometheus_client")
_LICENCE = Path("usr/share/licenses/hbatune/LICENSE")
_SPEC = """\
Name: hbatune
Version: {version}
Release: {release}
Summary: {summary}
License: Apache-2.0
Group: System Environment/Base
Packager: {maintainer}
BuildArch: noarch
AutoReqProv: no
Provides: hbatune = %{{version}}-%{{release}}
{relations}

%description
{description}

%install
cp -a {tree}/. %{{buildroot}}/

%post
python3 -m compileall -q /{private} || :
# Packages before 1.0.0 had a service that ran `hbatune watch --collect`.
units=/etc/systemd/system
if grep -qs 'watch --collect' $units/hbatune-latency.service; then
    systemctl disable --now hbatune-latency.service || :
    rm -f $units/hbatune-latency.service
fi
# A daemon that runs is still the old code; where none was installed, none is started.
if [ "$1" -gt 1 ] && [ -d /run/systemd/system ]; then
    # It is no stop in the sense of rollback_on_stop: the values stay.
    trap 'rm -f /run/hbatune/replacing' EXIT INT TERM
    # The daemon believes the file for as long as the process runs that it names (proc(5): stat).
    if [ -d /run/hbatune ]; then
        started=$(sed 's/.*) //' /proc/$$/stat | cut -d' ' -f20)
        echo "$$ $started" 2>/dev/null >/run/hbatune/replacing || :
    fi
    systemctl try-restart hbatune.service || :
fi

%preun
# Restore the values now: without the files nothing could restore them.
if [ "$1" -eq 0 ]; then
    if ! hbatune uninstall; then
        echo "hbatune: the package stays, since the above could not be undone." >&2
        exit 1
    fi
    find /{private} -name __pycache__ -type d -prune -exec rm -rf {{}} +
fi

%files
/{private}
/usr/bin/hbatune
/usr/share/man/man5/hbatune*.5*
/usr/share/man/man8/hbatune*.8*
%doc /{documentation}
%license /{licence}
{completions}

%changelog
* {day} {maintainer} - {version}-{release}
- Built from a checkout. CHANGELOG.md lists the changes.
"""


def build(folder: Path) -> Path:
    """Build the package into ``folder``, replace earlier packages there, and return its path.

    Raise ``BuildError`` if the build fails.
    """
    if shutil.which("rpmbuild") is None:
        raise BuildError("there is no rpmbuild: install the package rpm-build, or rpm on Debian")
    with tempfile.TemporaryDirectory() as scratch:
        tree, top = Path(scratch) / "tree", Path(scratch) / "rpm"
        tree.mkdir(mode=0o755)
        _add_program(tree, Path(scratch))
        places = _add_pages(tree)
        _set_modes(tree)
        spec = Path(scratch) / "hbatune.spec"
        spec.write_text(_spec(tree, places))
        _run(spec, top)
        (package,) = (top / "RPMS").rglob("hbatune-*.rpm")
        folder.mkdir(parents=True, exist_ok=True)
        for before in folder.glob("hbatune-*.rpm"):
            before.unlink()
        return Path(shutil.copy(package, folder / package.name))


def _add_program(tree: Path, scratch: Path) -> None:
    """Unpack a wheel of the checkout into its private directory in ``tree``, add the command."""
    with zipfile.ZipFile(build_wheel(scratch)) as packed:
        packed.extractall(tree / _PRIVATE)
    for licences in (tree / _PRIVATE).glob("*.dist-info/licenses"):
        shutil.rmtree(licences)
    command = tree / "usr/bin/hbatune"
    command.parent.mkdir(parents=True)
    shutil.copy(CHECKOUT / "packaging/hbatune", command)


def _set_modes(tree: Path) -> None:
    """Set the installed mode of every file and directory, ignoring the umask."""
    for path in (tree, *tree.rglob("*")):
        path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _add_pages(tree: Path) -> list[Path]:
    """Write man pages, completions and documentation. Return the paths of the completions."""
    completions = []
    for name, text in manual.files().items():
        place = _place(name)
        _write(tree / place, text.encode())
        if not name.endswith((".5", ".8")):
            completions.append(place)
    _write(tree / _LICENCE, (CHECKOUT / "LICENSE").read_bytes())
    for page, place in documentation().items():
        _write(tree / place, page.read_bytes())
    return completions


def _place(name: str) -> Path:
    """Return Fedora's path of a man page or a completion, by its name."""
    if name.endswith((".5", ".8")):
        return Path(f"usr/share/man/man{name[-1]}/{name}")
    if name.endswith(".bash"):
        return Path(f"usr/share/bash-completion/completions/{name.removesuffix('.bash')}")
    if name.endswith(".fish"):
        return Path(f"usr/share/fish/vendor_completions.d/{name}")
    return Path(f"usr/share/zsh/site-functions/{name}")


def _spec(tree: Path, completions: list[Path]) -> str:
    synopsis, about = description()
    needed = ["python3 >= 3.11", *NEEDED, *python_packages()]
    relations = [*(f"Requires: {item}" for item in needed), *(f"Suggests: {s}" for s in SUGGESTED)]
    return _SPEC.format(
        version=__version__,
        release=_release(),
        day=f"{_built():%a %b %d %Y}",
        maintainer=maintainer(),
        summary=synopsis[0].upper() + synopsis[1:],
        relations="\n".join(relations),
        description=about,
        tree=tree,
        private=_PRIVATE,
        documentation=DOCUMENTATION,
        licence=_LICENCE,
        completions="\n".join(f"/{place}" for place in completions),
    )


def python_packages() -> list[str]:
    """Return the Python packages that setup.cfg requires, with Fedora's names."""
    settings = configparser.ConfigParser()
    settings.read(CHECKOUT / "setup.cfg")
    required = settings["options"]["install_requires"].split()
    return [f"python3-{line.replace('>=', ' >= ')}" for line in required]


def version() -> str:
    """Return version and release. The release is higher for later commits, so dnf upgrades."""
    return f"{__version__}-{_release()}"


def _release() -> str:
    return f"{_built():%Y%m%d%H%M%S}"


def _built() -> datetime:
    return datetime.fromtimestamp(epoch(), UTC)


def _run(spec: Path, top: Path) -> None:
    macros = {
        "_topdir": str(top),
        "_buildhost": "reproducible",
        "use_source_date_epoch_as_buildtime": "1",
        "clamp_mtime_to_source_date_epoch": "1",
        # Do not process Python modules, so the package is the same on every build host.
        "__brp_python_bytecompile": "%{nil}",
        "__brp_mangle_shebangs": "%{nil}",
    }
    words = ["rpmbuild", "-bb", *(f"--define={name} {text}" for name, text in macros.items())]
    done = subprocess.run(
        [*words, str(spec)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch())},
    )
    if done.returncode != 0:
        raise BuildError(f"rpmbuild failed:\n{done.stdout}")


def main() -> int:
    """Build the package into the named directory, and print how to install it."""
    try:
        package = build(Path(sys.argv[1]))
    except BuildError as error:
        print(f"rpm: {error}", file=sys.stderr)
        return 1
    shown_path = os.path.relpath(package)
    print(f"rpm: {shown_path} is built. To install it, as root: dnf install ./{shown_path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
