"""The Debian package, installed as the README says: the daemon runs by systemd, and all goes back.

What other tests have of hbatune, on the job disk, is out of sight meanwhile: the system's Python
has what Debian's packages brought, and nothing else. Only where the guest reboots it is not, since
the tests need it then; the package's command comes with its own.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.guest import reboots
from tests.lab.guest.boot import LUN, UNIT
from tests.lab.guest.command import CONFIGURATION, JOURNAL, configure, hbatune, installed
from tests.lab.guest.kit import loaded_scsi_debug
from tests.lab.guest.machine_state import (
    by_place,
    list_files,
    look_at_a_tuned_machine,
    measure_files,
)
from tests.lab.guest.service import QUICK, QUIET, Journal, daemon, is_active, systemctl
from tests.lab.guest.values import cat, everything, put

KERNELS = ("6.12",)
# One that is there only while the guest's job is: pip would have put it there as root.
_OTHERS = (Path("/usr/local/bin"), Path("/usr/local/lib/python3.11/dist-packages"))


def dpkg(*words: str) -> None:
    """Run dpkg, which has to succeed."""
    done = subprocess.run(["dpkg", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _built() -> Path:
    """Return the package, where it could be built."""
    packages = list(Path("/job").glob("hbatune_*.deb"))
    if not packages:
        pytest.skip("the package is built on Debian 12 alone, for which the guest is")
    return packages[0]


def _higher(package: Path, folder: Path) -> Path:
    """Return the package once more, with a higher version."""
    tree, higher = folder / "tree", folder / "higher.deb"
    subprocess.run(["dpkg-deb", "--raw-extract", str(package), str(tree)], check=True)
    control = tree / "DEBIAN/control"
    control.write_text(re.sub(r"(?m)^(Version: .*)$", r"\1+higher", control.read_text()))
    subprocess.run(["dpkg-deb", "-Znone", "--build", str(tree), str(higher)], check=True)
    return higher


def _packaged(*words: str) -> None:
    """Run the package's command, which has to succeed."""
    done = subprocess.run(["/usr/bin/hbatune", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _baselines() -> dict[tuple[str, str], object]:
    """Return what there was before hbatune, as its journal has it."""
    entries = json.loads(JOURNAL.read_text())["entries"]
    return {(entry["id"], entry["setting"]): entry["before"] for entry in entries}


@pytest.fixture
def package() -> Iterator[Path]:
    """The package; hbatune is nowhere else, and no trace of it is left by other tests."""
    built_package = _built()
    hbatune("uninstall")
    configure("")
    away = {path: path.with_name(f"{path.name}.away") for path in _OTHERS}
    for path, name in away.items():
        path.rename(name)
    try:
        yield built_package
    finally:
        subprocess.run(["dpkg", "--purge", "hbatune"], check=False)
        for path, name in away.items():
            name.rename(path)
        hbatune("uninstall")


@pytest.mark.usefixtures("virtual_disks_wanted")
@pytest.mark.deadline(900)
def test_package_installs_and_leaves_nothing(package: Path) -> None:
    before, sizes = everything(), measure_files()
    dpkg("--install", str(package))
    assert everything() == before, "a package changes nothing by itself"
    where = installed("list", "--json")
    assert where.code == 0, where.err

    configure(QUICK)
    done = installed("install", "--profile", "oltp")
    assert done.code == 0, done.out + done.err
    assert "ExecStart=/usr/bin/hbatune daemon" in UNIT.read_text()
    assert is_active()
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
    remaining_files = {
        name for name in measure_files() if name not in sizes and "/var/lib/dpkg" not in name
    }
    assert not {name for name in remaining_files if "hbatune" in name and name != "/etc/hbatune"}
    assert not list(Path("/usr/lib/hbatune").rglob("*"))


@pytest.mark.deadline(1500)
def test_package_upgrade_survives_reboot(
    tmp_path: Path,
) -> None:
    package, state = _built(), reboots.take_state()
    if not state:
        hbatune("uninstall")
        before, files = by_place(), list_files()
        reboots.boot_as_a_server()
        dpkg("--install", str(package))
        configure(f"{QUIET}rollback_on_stop = true\n")
        _packaged("install", "--profile", "oltp")
        reboots.reboot(before=before, there=files)
    systemctl("is-system-running", "--wait", check=False)
    reboots.boot_as_before()
    look_at_a_tuned_machine()
    assert "/usr/bin/hbatune" in Path(f"/proc/{daemon()}/cmdline").read_text().split("\0")

    tuned, former, written = everything(), daemon(), CONFIGURATION.read_text()
    baselines = _baselines()
    with Journal() as journal:
        dpkg("--install", str(_higher(package, tmp_path)))
        assert everything() == tuned
        assert daemon() not in (former, 0)
        journal.until_said("ready: profile oltp")
    messages = [str(entry.get("MESSAGE")) for entry in journal.entries]
    assert "all values restored" not in messages
    assert not [entry for entry in journal.entries if "HBATUNE_SETTING" in entry], messages
    assert (CONFIGURATION.read_text(), _baselines()) == (written, baselines)

    dpkg("--remove", "hbatune")
    assert by_place() == state["before"]
    assert CONFIGURATION.exists()
    dpkg("--purge", "hbatune")
    assert list_files() == state["there"]
