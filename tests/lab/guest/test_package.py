"""The Debian package, installed as the README says: the daemon runs by systemd, and all goes back.

What other tests have of hbatune, on the job disk, is out of sight meanwhile: the system's Python
has what Debian's packages brought, and nothing else.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.guest.boot import LUN, UNIT
from tests.lab.guest.command import configure, hbatune, installed
from tests.lab.guest.kit import loaded_scsi_debug
from tests.lab.guest.service import QUICK, Journal, daemon, systemctl
from tests.lab.guest.test_install import files
from tests.lab.guest.values import cat, everything, put

KERNELS = ("6.12",)
# One that is there only while the guest's job is: pip would have put it there as root.
_OTHERS = (Path("/usr/local/bin"), Path("/usr/local/lib/python3.11/dist-packages"))


def dpkg(*words: str) -> None:
    """Run dpkg, which has to succeed."""
    done = subprocess.run(["dpkg", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def package() -> Iterator[Path]:
    """The package; hbatune is nowhere else, and no trace of it is left by other tests."""
    found = list(Path("/job").glob("hbatune_*.deb"))
    if not found:
        pytest.skip("the package is built on Debian 12 alone, for which the guest is")
    hbatune("uninstall")
    configure("")
    away = {path: path.with_name(f"{path.name}.away") for path in _OTHERS}
    for path, name in away.items():
        path.rename(name)
    try:
        yield found[0]
    finally:
        subprocess.run(["dpkg", "--purge", "hbatune"], check=False)
        for path, name in away.items():
            name.rename(path)
        hbatune("uninstall")


@pytest.mark.deadline(900)
def test_the_package_installs_runs_the_daemon_and_goes_without_a_trace(package: Path) -> None:
    before, there = everything(), files()
    dpkg("--install", str(package))
    assert everything() == before, "a package changes nothing by itself"
    where = installed("list", "--json")
    assert where.code == 0, where.err

    configure(QUICK)
    done = installed("install", "--profile", "oltp")
    assert done.code == 0, done.out + done.err
    assert "ExecStart=/usr/bin/hbatune daemon" in UNIT.read_text()
    assert systemctl("is-active", "hbatune.service") == "active"
    command = Path(f"/proc/{daemon()}/cmdline").read_text().split("\0")
    assert "/usr/bin/hbatune" in command
    with loaded_scsi_debug(**LUN) as [disk], Journal() as journal:
        put(disk, "queue/nr_requests", "64")
        journal.until(
            lambda entry: (entry.get("HBATUNE_TARGET"), entry.get("HBATUNE_FROM")) == (disk, "64")
        )
        assert cat(disk, "queue/nr_requests") == "2048"
    assert installed("status").code in (0, 1)

    dpkg("--remove", "hbatune")
    assert everything() == before
    assert systemctl("is-active", "hbatune.service", check=False) == "inactive"
    Path("/etc/hbatune/hbatune.toml").unlink(missing_ok=True)
    left = {name for name in files() if name not in there and "/var/lib/dpkg" not in name}
    assert not {name for name in left if "hbatune" in name and name != "/etc/hbatune"}
    assert not list(Path("/usr/lib/hbatune").rglob("*"))
