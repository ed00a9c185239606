"""The daemon names the writer of a value that has drifted: process, unit, udev's rule, kernel."""

import json
import os
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hbatune.agent.writers import WriterWatch
from tests.lab.guest import appear, daemon_host, multipath
from tests.lab.guest.command import hbatune
from tests.lab.guest.daemon_host import TRACEFS, reconfigured
from tests.lab.guest.kit import reload_rules, wait_a_moment
from tests.lab.guest.service import QUICK, QUIET, UNIT, Journal, daemon, restarted, systemctl
from tests.lab.guest.test_full_queue import DEPTH, RULE, SITE_RULES, busy, depth, full
from tests.lab.guest.values import BLOCK, cat

KERNELS = ("newest",)
pytestmark = pytest.mark.usefixtures("virtual_disks_wanted")
REPORTING = f'{QUICK}drift = "report"\n'
_RULES = Path("/run/udev/rules.d/99-local-queue.rules")
_TUNED = Path("/etc/tuned")
_CRONTABS = Path("/run/crontabs")
_SECTORS_RULE = """
[[rule]]
name = "small-requests"
when = { protocol = "virtual" }
setting = "max_sectors_kb"
value = 256
because = "a test"
source = "site"
"""
_CGROUP = Path("/sys/fs/cgroup/pod-0123")
_SHORT_LIVED = 41


@pytest.fixture(scope="module")
def original() -> Iterator[dict[str, str]]:
    """Every value before hbatune was installed."""
    with daemon_host.installed() as before:
        yield before


@pytest.fixture
def lun(original: dict[str, str]) -> Iterator[str]:
    """The LUN, whose daemon is in its first second again for the next test."""
    with daemon_host.tuned_lun() as disk:
        yield disk


def requests(disk: str) -> Path:
    return (BLOCK / disk / "queue/nr_requests").resolve()


@contextmanager
def written(*words: str) -> Iterator[int]:
    """Have a process write and stay; yield its pid."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(words, **pipes) as process:  # type: ignore[call-overload]
        yield int(process.stdout.readline())
        process.communicate(b"\n")


def until_named(journal: Journal, disk: str, setting: str = "nr_requests") -> tuple[str, str]:
    """Return the writer and the message of the entry about a setting of this disk."""
    entry = journal.until_set(disk, setting)
    return entry["HBATUNE_WRITER"], entry["MESSAGE"]


def test_daemon_may_watch(lun: str) -> None:
    """Its unit has the capability and the system calls, and the host's sysfs."""
    words = ["journalctl", "--boot", f"--unit={UNIT}", "--output=cat"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "does not name" not in done.stdout


def test_shell_is_named(lun: str) -> None:
    command = f"echo 64 > {requests(lun)}; echo $$; read end"
    with reconfigured() as journal, written("sh", "-c", command):
        writer, message = until_named(journal, lun)
    assert "nr_requests 64 → 2048, " in message
    assert f'{writer} (uid 0, "sh") set nr_requests at 20' in message
    drift = hbatune("history", lun, "--json").json["drift"][-1]
    assert (drift["setting"], drift["writer"], drift["message"]) == (
        "nr_requests",
        writer,
        message,
    )


def test_unit_is_named(lun: str) -> None:
    with reconfigured() as journal:
        command = f"echo 64 > {requests(lun)}; sleep 1"
        words = ["systemd-run", "--quiet", "--wait", "--unit=queue-tuner", "sh", "-c", command]
        subprocess.run(words, check=True)
        writer, message = until_named(journal, lun)
    assert writer == "queue-tuner.service"
    assert f'{writer} (uid 0, "sh") set nr_requests at 20' in message


def test_tuned_is_named(lun: str) -> None:
    profile = _TUNED / "profiles/few-requests/tuned.conf"
    profile.parent.mkdir(parents=True)
    profile.write_text(f"[main]\n[sysfs]\n{requests(lun)}=64\n")
    (_TUNED / "active_profile").write_text("few-requests\n")
    (_TUNED / "profile_mode").write_text("manual\n")
    with reconfigured() as journal:
        systemctl("start", "tuned")
        try:
            writer, message = until_named(journal, lun)
        finally:
            systemctl("stop", "tuned")
    assert writer == "tuned.service"
    assert f'{writer} (uid 0, "tuned") set nr_requests at 20' in message


def test_multipathd_is_named(lun: str) -> None:
    SITE_RULES.write_text(_SECTORS_RULE)
    try:
        with reconfigured() as journal, multipath.joined("max_sectors_kb 64"):
            entry = journal.until(lambda entry: entry.get("HBATUNE_SETTING") == "max_sectors_kb")
    finally:
        SITE_RULES.unlink()
    assert entry["HBATUNE_WRITER"] == "multipathd.service"


def test_cron_is_named(lun: str) -> None:
    """It starts its jobs at full minutes."""
    _CRONTABS.mkdir()
    (_CRONTABS / "root").write_text(f"* * * * * echo 64 > {requests(lun)}; sleep 2\n")
    words = ("crond", "-f", "-c", str(_CRONTABS))
    with reconfigured() as journal:
        subprocess.run(["systemd-run", "--quiet", "--unit=cron", "busybox", *words], check=True)
        try:
            writer, message = until_named(journal, lun)
        finally:
            systemctl("stop", "cron")
    assert writer == "cron.service"
    assert f'{writer} (uid 0, "' in message, "root's shell, or what it has become"


def test_container_is_named(lun: str) -> None:
    _CGROUP.mkdir()
    try:
        with reconfigured() as journal:
            inner = f"echo 64 > {requests(lun)}; echo $$; read end; true"
            command = f'echo $$ > {_CGROUP}/cgroup.procs; exec unshare --pid --fork sh -c "$0"'
            with written("sh", "-c", command, inner.replace("$$", "1")):
                writer, _ = until_named(journal, lun)
    finally:
        _CGROUP.rmdir()
    assert writer == "/pod-0123"


@contextmanager
def written_elsewhere(disk: str) -> Iterator[int]:
    """Have a process write through the sysfs of another network namespace, and stay."""
    command = f"mount -t sysfs none /sys; echo 64 > {requests(disk)}; echo $$; read end"
    with written("unshare", "--net", "--mount", "sh", "-c", command) as pid:
        yield pid


def test_other_namespace_is_named(lun: str) -> None:
    """Its sysfs is another file system, whose writes only the kprobe sees."""
    with reconfigured() as journal, written_elsewhere(lun):
        writer, message = until_named(journal, lun)
    assert f'{writer} (uid 0, "sh") set nr_requests at 20' in message
    assert writer not in ("kernel", "unknown")


def test_ended_container_has_kernels_name(lun: str) -> None:
    with reconfigured(REPORTING) as journal:
        stopped = daemon()
        os.kill(stopped, signal.SIGSTOP)
        with written_elsewhere(lun) as pid:
            pass
        os.kill(stopped, signal.SIGCONT)
        writer, message = until_named(journal, lun)
    assert writer == "ended"
    assert f'process {pid} ("sh"), which has ended, set nr_requests at 20' in message


def test_killed_daemon_leaves_one_kprobe(lun: str) -> None:
    """The next one removes the kprobe and the instance, and records again."""
    with reconfigured() as journal:
        os.kill(daemon(), signal.SIGKILL)
        journal.until_said("ready: ")
        with written_elsewhere(lun):
            writer, _ = until_named(journal, lun)
    assert writer not in ("kernel", "unknown")
    [kprobe] = (TRACEFS / "kprobe_events").read_text().splitlines()
    assert kprobe.startswith("p:hbatune/write sysfs_kf_write ")
    systemctl("stop", UNIT)
    try:
        assert (TRACEFS / "kprobe_events").read_text() == ""
        assert not (TRACEFS / "instances/hbatune-writes").exists()
    finally:
        systemctl("start", UNIT)


def test_without_kprobes_other_namespace_is_unknown(lun: str) -> None:
    """As with a kernel in lockdown mode."""
    hidden = f"InaccessiblePaths={TRACEFS}"
    with restarted(unit=hidden), Journal() as journal, written_elsewhere(lun):
        writer, _ = until_named(journal, lun)
    assert writer == "unknown"


def test_udev_rule_is_candidate(lun: str) -> None:
    _RULES.parent.mkdir(parents=True, exist_ok=True)
    with reconfigured() as journal:
        match = f'ACTION=="change", SUBSYSTEM=="block", KERNEL=="{lun}"'
        _RULES.write_text(f'{match}, ATTR{{queue/nr_requests}}="64"\n')
        try:
            reload_rules()
            words = ["udevadm", "trigger", "--settle", "--action=change", f"/sys/block/{lun}"]
            subprocess.run(words, check=True)
            writer, message = until_named(journal, lun)
        finally:
            _RULES.unlink()
            reload_rules()
    assert writer == "systemd-udevd.service"
    assert f", as in {_RULES}" in message


def test_status_shows_writer(lun: str) -> None:
    with reconfigured(REPORTING) as journal:
        command = f"echo 64 > {requests(lun)}; sleep 1"
        words = ["systemd-run", "--quiet", "--wait", "--unit=queue-tuner", "sh", "-c", command]
        subprocess.run(words, check=True)
        until_named(journal, lun)
        document = hbatune("status", "--json").json
        [change] = document["status"]["open"]
        assert (change["writer"]["kind"], change["writer"]["unit"]) == (
            "process",
            "queue-tuner.service",
        )
        systemctl("restart", UNIT)
        journal.until_said("ready: ")
        shown = " ".join(hbatune("status").out.split())
        assert 'queue-tuner.service (uid 0, "sh") set nr_requests' in shown
        assert document["status"]["lost_writes"] == 0


def test_controller_reset_is_kernels(lun: str) -> None:
    with appear.less_read_ahead(), reconfigured() as journal:
        reset = appear.Reset()
        while not reset.right(reset.disk):
            wait_a_moment()
        appear.again(reset)
        writer, message = until_named(journal, reset.disk, "read_ahead_kb")
    assert "reset by the kernel" in message
    assert writer == "kernel"


@pytest.mark.deadline(600)
def test_ramp_is_kernels(lun: str) -> None:
    SITE_RULES.write_text(RULE)
    try:
        with reconfigured() as journal:
            with busy(lun), full(lun):
                while depth(lun) > DEPTH - 3:
                    wait_a_moment()
            writer, message = until_named(journal, lun, "queue_depth")
            done = hbatune("apply", "--no-probe", lun)  # ends the ramp
            assert done.code == 0, done.out
    finally:
        SITE_RULES.unlink()
    assert "the device's queue was full" in message
    assert writer == "kernel"


def test_own_commands_are_not_named(lun: str) -> None:
    """An apply repairs what a process has set, so the next pass finds nothing."""
    with reconfigured(QUIET) as journal:
        with written("sh", "-c", f"echo 64 > {requests(lun)}; echo $$; read end"):
            assert hbatune("apply", "--no-probe", lun).code == 0
            journal.reload()
        assert [entry for entry in journal.entries if "HBATUNE_WRITER" in entry] == []


def test_short_lived_writers_are_counted(lun: str) -> None:
    """A writer that is gone too soon is never another one."""
    reader, writer = os.pipe()
    ready, started = os.pipe()
    if os.fork() == 0:
        watch, kinds = WriterWatch(), list[tuple[str, str | None]]()
        assert watch.start() is None
        os.write(started, b"x")
        poll = select.poll()
        poll.register(watch.fileno() or 0, select.POLLIN)
        while len(kinds) < _SHORT_LIVED and poll.poll(30_000):
            watch.take()
            kinds += [(entry.kind, entry.comm) for _, entry in watch._last.values()]
            watch._last.clear()
        os.write(writer, json.dumps(kinds).encode())
        os._exit(0)
    os.read(ready, 1)
    value = cat(lun, "queue/read_ahead_kb")
    for _ in range(_SHORT_LIVED):
        subprocess.run(["sh", "-c", f"echo {value} > /sys/block/{lun}/queue/read_ahead_kb"])
        wait_a_moment()
    os.wait()
    kinds = [tuple(entry) for entry in json.loads(os.read(reader, 1 << 16))]
    named = kinds.count(("process", "sh"))
    print(f"named {named} of {len(kinds)} short-lived writers on {os.uname().release}")
    assert len(kinds) == _SHORT_LIVED
    assert set(kinds) <= {("process", "sh"), ("ended", None)}
