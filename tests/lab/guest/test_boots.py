"""Over real reboots: tuned at the first login, and as it was before once hbatune is gone."""

import subprocess

import pytest

from tests.lab.guest import reboots
from tests.lab.guest.command import hbatune, installed
from tests.lab.guest.machine_state import by_place, list_files, look_at_a_tuned_machine
from tests.lab.guest.service import systemctl

KERNELS = ("6.1",)


def udev_database() -> str:
    """Return all that udev keeps of all devices."""
    words = ["udevadm", "info", "--export-db"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


@pytest.mark.deadline(900)
def test_reboot_tunes_and_uninstall_restores() -> None:
    state = reboots.take_state()
    match state.get("stage"):
        case None:
            hbatune("uninstall")  # the active profile and the history that other tests left
            before, files = by_place(), list_files()
            reboots.boot_as_a_server()
            done = installed("install", "--profile", "oltp")
            assert done.code == 0, done.out + done.err
            reboots.reboot(stage="installed", before=before, there=files)
        case "installed":
            systemctl("is-system-running", "--wait", check=False)
            look_at_a_tuned_machine()
            done = hbatune("uninstall")
            assert done.code == 0, done.out + done.err
            assert by_place() == state["before"]
            assert "HBATUNE" not in udev_database()
            reboots.reboot(**{**state, "stage": "gone"})
        case "gone":
            systemctl("is-system-running", "--wait", check=False)
            reboots.boot_as_before()
            assert by_place() == state["before"]
            assert list_files() == state["there"]
