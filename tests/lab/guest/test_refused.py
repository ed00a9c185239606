"""Commands that are refused or run twice: nothing is written to the kernel.

Bad usage, users without root and full disks are tested on described machines.
"""

import fcntl
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lab.guest.command import JOURNAL, configure, hbatune
from tests.lab.guest.kit import scsi_disks
from tests.lab.guest.values import everything, put_back

KERNELS = ("6.1",)
pytestmark = pytest.mark.usefixtures("virtual_disks_wanted", "rolled_back")
LOCK = Path("/run/hbatune/lock")

ScsiDebug = Callable[..., list[str]]


def test_read_only_sys_stops_apply() -> None:
    before = everything()
    mounts = (
        f"mount --bind {path} {path} && mount -o remount,ro,bind {path}"
        for path in ("/sys", "/proc/irq")
    )
    script = " && ".join((*mounts, "exec hbatune apply --profile oltp --no-probe --json"))
    bind = ("unshare", "-m", "sh", "-c", script)
    done = subprocess.run(bind, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "/sys is mounted read-only" in done.stderr
    assert everything() == before
    assert not JOURNAL.exists(), "what was not changed needs no baseline"


def test_second_writer_exits_3() -> None:
    LOCK.parent.mkdir(parents=True, exist_ok=True)
    with open(LOCK, "w") as holder:
        fcntl.lockf(holder, fcntl.LOCK_EX)
        for command in (("apply", "--profile", "oltp", "--no-probe"), ("rollback",)):
            done = hbatune(*command)
            assert done.code == 3
            assert str(os.getpid()) in done.err
        assert hbatune("diff", "--profile", "oltp").code == 1, "reading needs no lock"


def test_simultaneous_applies_never_both_write() -> None:
    command = ["hbatune", "apply", "--profile", "oltp", "--no-probe"]
    both = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for _ in range(2)]
    codes = sorted(process.wait() for process in both)
    assert codes in ([0, 3], [0, 0])


def test_earlier_boot_journal_restores_nothing(tmp_path: Path) -> None:
    before = everything()
    [disk] = scsi_disks("sym53c8xx")
    assert hbatune("apply", "--profile", "oltp", "--no-probe", disk).code == 0
    tuned = everything()
    earlier_id = tmp_path / "boot_id"
    earlier_id.write_text("00000000-1111-2222-3333-444444444444\n")
    boot_id = "/proc/sys/kernel/random/boot_id"
    script = f"mount --bind {earlier_id} {boot_id} && exec hbatune rollback"
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "earlier boot" in done.stderr
    assert everything() == tuned, "a value of another boot is nobody's baseline"
    put_back(before)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[rule]\n", "line 1"),
        (
            '[[rule]]\nname = "x"\nsetting = "nr_request"\nvalue = 8\n'
            'because = "x"\nsource = "site"\n',
            "nr_requests",
        ),
        (
            '[[rule]]\nname = "x"\nsetting = "nr_requests"\nvalue = 9999\n'
            'because = "x"\nsource = "site"\n',
            "2048",
        ),
        (
            '[[rule]]\nname = "x"\nsetting = "nr_requests"\nvalue = 8\nat_least = 9\n'
            'because = "x"\nsource = "site"\n',
            "at_least",
        ),
    ],
    ids=["malformed", "unknown-setting", "out-of-range", "contradictory"],
)
def test_bad_rule_file_writes_nothing(text: str, message: str) -> None:
    before = everything()
    rules = Path("/etc/hbatune/rules.d/mistake.toml")
    rules.parent.mkdir(parents=True, exist_ok=True)
    rules.write_text(text)
    try:
        done = hbatune("apply", "--profile", "oltp", "--no-probe")
    finally:
        rules.unlink()
    assert done.code == 2
    assert "mistake.toml" in done.err
    assert message in done.err
    assert "Traceback" not in done.err
    assert everything() == before


def test_bad_configuration_allows_rollback() -> None:
    before = everything()
    assert hbatune("apply", "--profile", "oltp", "--no-probe", *scsi_disks("sym53c8xx")).code == 0
    assert everything() != before
    configure("[daemon\n")
    back = hbatune("rollback")
    assert back.code == 1, "the profile stays written"
    assert "hbatune.toml" in back.err
    assert everything() == before


def test_world_writable_rule_is_refused() -> None:
    rules = Path("/etc/hbatune/rules.d/open.toml")
    rules.parent.mkdir(parents=True, exist_ok=True)
    rules.write_text("")
    rules.chmod(0o666)
    try:
        done = hbatune("apply", "--profile", "oltp", "--no-probe")
        assert done.code == 2
        assert "open.toml" in done.err
    finally:
        rules.unlink()


def test_excessive_request_memory_is_refused(scsi_debug: ScsiDebug) -> None:
    luns = scsi_debug(max_luns=4)
    before = everything()
    configure("[act]\nmemory_share = 0.0001\n")
    done = hbatune("apply", "--profile", "oltp", "--no-probe", *luns)
    assert done.code == 2
    assert "memory" in done.err
    assert everything() == before
