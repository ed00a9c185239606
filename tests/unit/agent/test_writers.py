"""Tests of hbatune/agent/writers.py: a real group of fanotify(7), with processes that write."""

import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from hbatune.act.paths import Paths
from hbatune.act.tracefs import SettingWrite, WriteTrace
from hbatune.agent import writers
from hbatune.agent.orders import (
    ChangeOrigin,
    Handled,
    PassReport,
    SettingChange,
    Writer,
    WriterKind,
)
from hbatune.agent.writers import WriterWatch, parse_events
from hbatune.facts import observe
from hbatune.facts.model import TargetKind
from hbatune.watch.readings import Subjects

_SHARED_MEMORY = "/dev/shm"
DRIFT = SettingChange("sda", "id-sda", "nr_requests", 128, 2048, "rule", Handled.REPORTED)
REPAIRED = replace(DRIFT, handled=Handled.WRITTEN)
KERNEL, UNKNOWN = Writer(WriterKind.KERNEL), Writer(WriterKind.UNKNOWN)


class FakeTrace(WriteTrace):
    """The kernel's record of writes, also through the sysfs of other namespaces."""

    def __init__(self, *_: object) -> None:
        self.writes = list[SettingWrite]()
        self.gap = float("inf")  # the kernel forbids it

    def start(self) -> None:
        """Start nothing."""

    def read_writes(self, since: float) -> tuple[list[SettingWrite], bool]:
        if self.gap == float("inf"):
            raise OSError
        return [w for w in self.writes if w.time > max(since, self.gap)], self.gap < since

    def remove(self) -> None:
        """Remove nothing."""


class Bench:
    """A watch of a file system in memory, on which the files of a disk are."""

    def __init__(self, folder: Path, processes: ExitStack) -> None:
        self.folder, self._processes = folder, processes
        self.watch = WriterWatch(root=_SHARED_MEMORY)
        (folder / "queue").mkdir()
        for name in ("nr_requests", "scheduler", "read_ahead_kb", "discard_max_bytes"):
            (folder / "queue" / name).write_text("1")

    def trace(self, pid: int, name: str = "nr_requests", comm: str = "tuner") -> None:
        """Have the kernel record a write through another sysfs."""
        inode = (self.folder / "queue" / name).stat().st_ino
        self.traced.writes.append(SettingWrite(time.monotonic(), pid, inode, name, comm))

    @property
    def traced(self) -> FakeTrace:
        trace = self.watch._trace
        assert isinstance(trace, FakeTrace)
        return trace

    def find_inodes(self, kind: TargetKind, target: str, paths: list[str]) -> list[int]:
        files = map(self.folder.joinpath, paths)
        return [file.stat().st_ino for file in files if file.exists()]

    def scan(
        self, *changes: SettingChange, whole: bool = True, started: float | None = None
    ) -> list[Writer | None]:
        """End a pass that has found these changes; return their writers."""
        report = PassReport("test", 1, changes, subjects=Subjects(), whole=whole)
        started = time.monotonic() if started is None else started
        named = self.watch.name_writers(report, started)
        return [change.writer for change in named.changes]

    def write(self, name: str = "nr_requests", *, shell: str = "sh", own: bool = False) -> int:
        """Write in another process; return its pid. It stays, and is not a child of this one."""
        file = self.folder / "queue" / name
        words = [shell, "-c", f"read start; echo 128 > {file}; echo $$; read end; true"]
        process = subprocess.Popen(
            words if own else ["setsid", "--fork", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._processes.callback(process.communicate)
        assert process.stdin is not None
        assert process.stdout is not None
        if not own:
            process.wait()  # until setsid has ended, its child descends from this process
        process.stdin.write(b"start\n")
        process.stdin.flush()
        return int(process.stdout.readline())


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A daemon that watches, after its first full pass."""
    monkeypatch.setattr(writers, "WriteTrace", FakeTrace)
    with tempfile.TemporaryDirectory(dir=_SHARED_MEMORY) as folder, ExitStack() as processes:
        new_bench = Bench(Path(folder), processes)
        if problem := new_bench.watch.start():
            pytest.skip(problem)
        monkeypatch.setattr(writers, "find_inodes", new_bench.find_inodes)
        monkeypatch.setattr(writers, "_PROCESSES", folder)
        monkeypatch.setattr(Paths, "lock", Path(folder, "lock"))
        monkeypatch.setattr(Paths, "lock_spare", Path(folder, "spare"))
        new_bench.scan()
        yield new_bench
        new_bench.watch.stop()


def test_living_writer_is_identified(bench: Bench) -> None:
    pid = bench.write()
    [writer] = bench.scan(DRIFT)
    assert writer is not None
    assert (writer.kind, writer.pid, writer.uid) == (WriterKind.PROCESS, pid, os.getuid())
    assert (writer.comm, writer.attribute) == ("sh", "nr_requests")
    assert f"::{writer.cgroup}\n" in Path(f"/proc/{pid}/cgroup").read_text()


def test_latest_writer_is_named(bench: Bench) -> None:
    bench.write()
    bench.watch.take()
    latest = bench.write("scheduler")  # which resets nr_requests
    [writer] = bench.scan(DRIFT)
    assert writer is not None
    assert (writer.pid, writer.attribute) == (latest, "scheduler")


def test_ended_writer_stays_anonymous(bench: Bench) -> None:
    file = bench.folder / "queue/nr_requests"
    words = ["sh", "-c", f"sh -c 'echo 1 > {file}; echo $$'; true"]
    ended = int(subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout)
    [writer] = bench.scan(DRIFT)
    assert writer is not None
    assert (writer.kind, writer.pid) == (WriterKind.ENDED, ended)
    assert (writer.uid, writer.cgroup, writer.comm) == (None, None, None)


def test_change_without_write_is_kernels(bench: Bench) -> None:
    bench.write("discard_max_bytes")  # no setting
    assert bench.scan(DRIFT) == [KERNEL]
    assert bench.scan(replace(REPAIRED, origin=ChangeOrigin.RESET), whole=False) == [KERNEL]


@pytest.mark.parametrize(
    ("mount", "writer"),
    [
        ("0:23 / /sys ro,relatime - sysfs sysfs rw", KERNEL),
        ("0:24 / /tmp rw,relatime shared:9 - tmpfs tmpfs rw", KERNEL),
        ("0:23 / /sys rw,relatime shared:7 - sysfs sysfs rw", UNKNOWN),
    ],
)
def test_other_sysfs_hides_writers(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, mount: str, writer: Writer
) -> None:
    """A container has the sysfs of another network namespace."""
    file = bench.folder / "1/mountinfo"
    file.parent.mkdir()
    file.write_text(f"25 30 {mount}\n")
    monkeypatch.setattr(writers, "_PROCESSES", str(bench.folder))
    assert bench.scan(DRIFT) == [writer]


@pytest.fixture
def traced(bench: Bench) -> Bench:
    """Return a daemon whose kernel allows kprobes, while a container may write to sysfs."""
    bench.traced.gap = time.monotonic()
    mounts = bench.folder / "1/mountinfo"
    mounts.parent.mkdir()
    mounts.write_text("25 30 0:23 / /sys rw,relatime shared:7 - sysfs sysfs rw\n")
    bench.scan()
    return bench


@contextmanager
def container() -> Iterator[int]:
    """Run a process that is not the daemon's; yield its pid."""
    words = ["setsid", "--fork", "sh", "-c", "echo $$; exec sleep 60"]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.wait()
        try:
            yield pid
        finally:
            os.kill(pid, signal.SIGKILL)


def test_writer_in_other_namespace_is_identified(
    traced: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    with container() as pid:
        traced.trace(pid)
        [writer] = traced.scan(DRIFT, whole=False)
        assert writer is not None
        assert (writer.kind, writer.pid, writer.uid) == (WriterKind.PROCESS, pid, os.getuid())
        assert (writer.comm, writer.attribute) == ("tuner", "nr_requests")
        assert f"::{writer.cgroup}\n" in Path(f"/proc/{pid}/cgroup").read_text()
    monkeypatch.setattr(writers, "read_age", lambda _: -1.0)
    assert traced.scan(replace(DRIFT, before=64)) == [writer], "it is known also after its end"


def test_ended_writer_has_kernels_name(traced: Bench) -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    traced.trace(ended.pid, "scheduler", comm="a\x1b\nb")
    [writer] = traced.scan(DRIFT)
    assert writer is not None
    assert (writer.kind, writer.pid, writer.uid) == (WriterKind.ENDED, ended.pid, None)
    assert (writer.comm, writer.attribute) == ("a\\x1b\\nb", "scheduler")


def test_process_with_reused_pid_is_not_writer(traced: Bench) -> None:
    """It is younger than the write."""
    an_hour_ago = time.monotonic() - 3600
    traced.traced.gap = an_hour_ago - 2
    traced.scan(started=an_hour_ago - 1)
    with container() as pid:
        traced.trace(pid)
        [write] = traced.traced.writes
        traced.traced.writes = [replace(write, time=an_hour_ago)]
        [writer] = traced.scan(DRIFT)
    assert writer is not None
    assert (writer.kind, writer.comm) == (WriterKind.ENDED, "tuner")


def test_traced_change_without_write_is_kernels(traced: Bench) -> None:
    """The kernel records all writes, so a container that may write has not written."""
    traced.trace(1, "discard_max_bytes")
    assert traced.scan(DRIFT) == [KERNEL]
    assert traced.scan(replace(DRIFT, setting="read_ahead_kb")) == [UNKNOWN], "or an ioctl"


def test_restarted_trace_does_not_cover_the_gap(traced: Bench) -> None:
    traced.watch.stop()
    traced.watch.start()
    assert traced.scan(DRIFT, whole=False) == [UNKNOWN]


def test_trace_replaces_lost_events(traced: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon has had records of too many files, and has dropped one."""
    monkeypatch.setattr(writers, "MAX_RECORDS", 1)
    traced.write("scheduler")
    traced.watch.take()
    traced.write("read_ahead_kb")
    assert traced.scan(replace(DRIFT, setting="nomerges"), whole=False) == [None], "no such file"
    assert traced.scan(DRIFT, whole=False) == [KERNEL], "the kernel recorded no write"


def test_lost_trace_leaves_writer_unknown(traced: Bench) -> None:
    traced.trace(1)
    traced.traced.gap = time.monotonic()
    assert traced.scan(DRIFT) == [UNKNOWN]
    assert traced.scan(replace(DRIFT, before=64)) == [KERNEL], "after another full pass"


def test_later_write_in_other_namespace_counts(traced: Bench) -> None:
    traced.write()
    traced.watch.take()
    with container() as pid:
        traced.trace(pid)
        [writer] = traced.scan(DRIFT)
    assert writer is not None
    assert writer.pid == pid


def test_identified_writer_stays_identified(traced: Bench) -> None:
    """The kernel has recorded the same write by one of its threads."""
    traced.trace(1)
    pid = traced.write()
    [writer] = traced.scan(DRIFT)
    assert writer is not None
    assert writer.pid == pid


def test_further_write_of_identified_process_changes_nothing(traced: Bench) -> None:
    """The process may have ended since."""
    pid = traced.write()
    traced.watch.take()
    identified = traced.watch._last.copy()
    traced.trace(pid)
    [write] = traced.traced.writes
    traced.traced.writes = [replace(write, time=write.time + 3600)]
    [writer] = traced.scan(DRIFT)
    assert writer in [process for _, process in identified.values()]


def test_traced_repair_is_no_writer(traced: Bench) -> None:
    """Neither of this pass nor of an earlier one."""
    with container() as pid:
        started = time.monotonic()
        traced.trace(pid)
        traced.trace(4711)
        report = PassReport("test", 1, (REPAIRED,), subjects=Subjects(), whole=False)
        report = replace(report, workers=(4711,))
        [change] = traced.watch.name_writers(report, started).changes
        assert change.writer is not None
        assert change.writer.pid == pid
        assert traced.scan(REPAIRED) == [KERNEL], "it was settled by the repair"


def test_write_after_repair_is_not_its_cause(traced: Bench) -> None:
    """The next pass finds the value of this write."""
    with container() as first, container() as second:
        started = time.monotonic()
        for pid in (first, 4711, second):
            traced.trace(pid)
        report = PassReport("test", 1, (REPAIRED,), subjects=Subjects(), whole=False)
        report = replace(report, workers=(4711,))
        [change] = traced.watch.name_writers(report, started).changes
        [later] = traced.scan(replace(DRIFT, before=64), whole=False)
    assert change.writer is not None
    assert later is not None
    assert (change.writer.pid, later.pid) == (first, second)


def test_own_sysfs_is_no_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "1").symlink_to("/proc/self")
    monkeypatch.setattr(writers, "_PROCESSES", str(tmp_path))
    assert not writers._has_other_sysfs(os.stat("/sys").st_dev)
    assert writers._has_other_sysfs(os.stat("/").st_dev)


def test_change_by_ioctl_is_unknown(bench: Bench) -> None:
    read_ahead = replace(DRIFT, setting="read_ahead_kb")
    assert bench.scan(read_ahead) == [UNKNOWN]
    reset = replace(read_ahead, origin=ChangeOrigin.RESET, before=64)
    assert bench.scan(reset) == [KERNEL], "an event has reported the reset"


def test_change_before_watch_is_unknown(bench: Bench) -> None:
    bench.watch.stop()
    bench.watch.start()
    assert bench.scan(DRIFT, whole=False) == [UNKNOWN]
    bench.scan()
    assert bench.scan(DRIFT) == [KERNEL]


def test_lost_events_leave_writer_unknown(bench: Bench) -> None:
    """The kernel drops events beyond the limit of the queue."""
    limit = int(Path("/proc/sys/fs/fanotify/max_queued_events").read_text())
    for number in range(limit + 1):  # more files, since equal events are merged
        (bench.folder / f"file{number}").write_text("1")
    while not bench.watch.overruns:
        bench.watch.take()
    assert bench.scan(DRIFT) == [UNKNOWN]
    assert bench.scan(replace(DRIFT, before=64)) == [KERNEL], "after another full pass"


def test_other_causes_have_no_writer(bench: Bench) -> None:
    bench.write()
    held = replace(DRIFT, handled=Handled.HELD)
    new = replace(DRIFT, origin=ChangeOrigin.NEW)
    vector = replace(DRIFT, setting="irq_affinity")
    assert bench.scan(held, new, vector) == [None, None, None]


def test_own_pass_is_no_writer(bench: Bench) -> None:
    """The pass writes after it has read the wrong value, and before it reports it."""
    foreign = bench.write()
    bench.watch.take()
    bench.write(own=True)
    [writer] = bench.scan(REPAIRED, whole=False)
    assert writer is not None
    assert writer.pid == foreign
    bench.write(own=True)
    assert bench.scan(REPAIRED, whole=False) == [KERNEL], "the write before is settled"


def test_own_ended_worker_is_recognized(bench: Bench) -> None:
    file = bench.folder / "queue/nr_requests"
    command = f"echo 1 > {file}; echo; read next; echo 1 > {bench.folder}/queue/scheduler"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(["sh", "-c", command], **pipes) as worker:  # type: ignore[call-overload]
        worker.stdout.readline()
        bench.watch.take()
        worker.communicate(b"\n")
    assert bench.scan(DRIFT) == [KERNEL]


def test_unidentified_worker_of_pass_is_own(bench: Bench) -> None:
    file = bench.folder / "queue/nr_requests"
    with subprocess.Popen(["sh", "-c", f"echo 1 > {file}"]) as worker:
        worker.wait()
    bench.watch.take()
    report = PassReport("test", 1, (DRIFT,), subjects=Subjects(), workers=(worker.pid,))
    [change] = bench.watch.name_writers(report, time.monotonic()).changes
    assert change.writer == KERNEL


def test_other_command_is_hbatune(bench: Bench) -> None:
    """The process that holds the lock is another command of hbatune, also after its end."""
    folder = bench.folder / "queue"
    script = (
        "import sys; from pathlib import Path; from hbatune.act.lock import Lock\n"
        "sys.stdin.readline()\n"
        f"with Lock(Path({str(Paths.lock)!r})):\n"
        f"    Path({str(folder / 'nr_requests')!r}).write_text('64')\n"
        "    print(flush=True); sys.stdin.readline()\n"
        f"Path({str(folder / 'scheduler')!r}).write_text('none')"
    )
    words = ["setsid", "--fork", sys.executable, "-c", script]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as command:
        assert command.stdin is not None
        assert command.stdout is not None
        command.wait()
        command.stdin.write(b"\n")
        command.stdin.flush()
        command.stdout.readline()
        bench.watch.take()
        command.communicate(b"\n")
    [writer] = bench.scan(DRIFT)
    assert writer is not None
    assert writer.kind is WriterKind.HBATUNE


def test_unidentified_write_is_not_kernels(bench: Bench) -> None:
    """It may be the pass's own write or another process's: the pass has written since."""
    subprocess.run(["sh", "-c", f"echo 1 > {bench.folder}/queue/nr_requests"], check=True)
    assert bench.scan(REPAIRED) == [UNKNOWN]


def test_udev_rules_are_candidates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observe, "_FOLDERS", (str(tmp_path),))
    (tmp_path / "60-queue.rules").write_text('ATTR{queue/nr_requests}="64"\n')
    (tmp_path / "61-other.rules").write_text('ATTR{queue/nr_requests}=="64", NAME="x"\n')
    assert writers._find_udev_rules("nr_requests") == (f"{tmp_path}/60-queue.rules",)
    assert writers._find_udev_rules("scheduler") == ()


def test_open_change_keeps_writer(bench: Bench) -> None:
    pid = bench.write()
    [writer] = bench.scan(DRIFT)
    assert bench.scan(DRIFT) == [writer], "the next audit finds it again"
    assert writer is not None
    assert writer.pid == pid
    later = replace(DRIFT, writer=writer)
    bench.watch.stop()
    bench.watch = WriterWatch([later], root=_SHARED_MEMORY)
    bench.watch.start()
    assert bench.scan(DRIFT) == [writer], "after a restart"
    assert bench.scan(replace(DRIFT, before=64)) == [KERNEL], "it has changed since"


def test_records_are_bounded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "MAX_RECORDS", 1)
    bench.write()
    bench.watch.take()
    bench.write("read_ahead_kb")
    assert bench.scan(DRIFT, whole=False) == [UNKNOWN]


def test_full_pass_forgets_earlier_writes(bench: Bench) -> None:
    bench.write()
    bench.watch.take()
    assert bench.scan() == []
    assert bench.scan(DRIFT) == [KERNEL], "the pass found the right value"


def test_write_during_pass_is_kept(bench: Bench) -> None:
    started = time.monotonic()
    pid = bench.write()
    bench.scan(started=started)
    [writer] = bench.scan(DRIFT)
    assert writer is not None
    assert writer.pid == pid


def test_hostile_name_is_printable(bench: Bench) -> None:
    hostile = bench.folder / "a\x1b[2J\nb"
    hostile.symlink_to("/bin/sh")
    bench.write(shell=str(hostile))
    [writer] = bench.scan(DRIFT)
    assert writer is not None
    assert writer.comm == "a\\x1b[2J\\nb"


def test_other_file_system_is_not_watched(tmp_path: Path) -> None:
    watch = WriterWatch(root=str(tmp_path))
    assert watch.start() == f"{tmp_path} is not mounted"
    assert watch.start() is None, "reported once"
    assert watch.fileno() is None


@pytest.mark.parametrize(
    ("cgroup", "unit"),
    [
        ("/system.slice/tuned.service", "tuned.service"),
        ("/system.slice/systemd-udevd.service/udev", "systemd-udevd.service"),
        ("/user.slice/user-0.slice/session-3.scope", "session-3.scope"),
        (
            "/user.slice/user-1000.slice/user@1000.service/app.slice/tuned.service",
            "user@1000.service",
        ),
        ("/machine.slice/machine-x.scope/payload/system.slice/tuned.service", "machine-x.scope"),
        ("/lxc.payload.c1/system.slice/tuned.service", None),
        ("/docker/0123abcd", None),
        ("/", None),
    ],
)
def test_only_units_of_system_count(cgroup: str, unit: str | None) -> None:
    match = writers._UNIT.match(cgroup)
    assert (match[1] if match else None) == unit


def test_events_are_parsed() -> None:
    overflow = struct.pack("=IBBHQiiBBHi", 32, 3, 0, 24, 0x4000, -1, 0, 4, 0, 8, -1)
    write = struct.pack("=IBBHQiiBBHi", 32, 3, 0, 24, 0x2, 7, 4711, 4, 0, 8, 8)
    assert list(parse_events(overflow + write)) == [(0x4000, -1, 0, -1), (2, 7, 4711, 8)]
