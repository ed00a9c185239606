"""Instances of tracefs, and the writes to sysfs that the kernel records in one."""

import os
import time
from pathlib import Path

import pytest

from hbatune.act.tracefs import NO_FILTER, TraceInstance, WriteTrace, remove_leftovers
from hbatune.facts import sampler


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give up root")
def test_unreadable_tracefs_has_no_leftovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for other users, and for a daemon whose unit hides it."""
    monkeypatch.setattr(sampler, "TRACEFS", str(tmp_path / "tracing"))
    (tmp_path / "tracing/instances/hbatune-watch-1").mkdir(parents=True)
    (tmp_path / "tracing").chmod(0)
    os.seteuid(65534)
    try:
        remove_leftovers("hbatune-watch-*")
        TraceInstance("hbatune", {"block/x": NO_FILTER}, 32).remove()
    finally:
        os.seteuid(0)
    remove_leftovers("hbatune-watch-*")
    assert list((tmp_path / "tracing/instances").iterdir()) == []


class Recorder:
    """A kernel that records writes to sysfs. It prints ``lines`` of them, and ``tests``."""

    def __init__(self, tracefs: Path) -> None:
        self.tracefs, self.folder = tracefs, tracefs / "instances/hbatune-writes"
        self.kprobes, self.test_file = tracefs / "kprobe_events", tracefs / "uevent"
        for folder in ("events/hbatune/write", "options", "per_cpu/cpu0", "per_cpu/cpu1"):
            (self.folder / folder).mkdir(parents=True)
        self.kprobes.touch()
        self.test_file.touch()
        self.begin = time.monotonic()
        for cpu in (0, 1):
            self.overwrite(cpu, 0, self.begin)

    def overwrite(self, cpu: int, lost: int, oldest: float) -> None:
        text = f"entries: 9\noverrun: {lost}\ncommit overrun: 0\noldest event ts: {oldest:12.6f}\n"
        (self.folder / f"per_cpu/cpu{cpu}/stats").write_text(text)

    def print(
        self, seconds: float, pid: int, comm: str, *, inode: int = 77, name: str = "nr_requests"
    ) -> str:
        """Return the line of a write: some kernels have the inode number behind the pointer."""
        fields = f'a=18446612682110476288 b={inode} name="{name}" comm="{comm}"'
        if pid % 2:
            fields = f'a={inode} b=18446612682110476288 name="{name}" comm="{comm}"'
        head = f"           <...>-{pid:<7} [001] ...1. {self.begin + seconds:12.6f}: write: "
        return f"{head}(sysfs_kf_write+0x0/0x60) {fields}\n"

    def record(self, *lines: str, pid: int | None = None, seconds: float = 0.5) -> WriteTrace:
        """Return a trace with these lines after a header, and with the test of a process."""
        test = self.print(
            seconds,
            pid or os.getpid(),
            "hbatune",
            inode=self.test_file.stat().st_ino,
            name="uevent",
        )
        trace = WriteTrace()
        trace.start()
        (self.folder / "trace").write_text("".join(["# tracer: nop\n#\n", *lines, test]))
        return trace


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    new_recorder = Recorder(tmp_path)
    monkeypatch.setattr(sampler, "TRACEFS", str(tmp_path))
    monkeypatch.setattr(sampler, "TEST_FILE", str(new_recorder.test_file))
    return new_recorder


def test_writes_to_sysfs_are_parsed(recorder: Recorder) -> None:
    """A process may choose a name that looks like a part of a line."""
    hostile = '0" b=5\n comm="x'
    lines = [recorder.print(0.1, 4711, "sh"), recorder.print(0.2, 4712, hostile, inode=78)]
    writes, is_complete = recorder.record(*lines).read_writes(recorder.begin)
    assert [(write.pid, write.inode, write.attribute, write.comm) for write in writes[:2]] == [
        (4711, 77, "nr_requests", "sh"),
        (4712, 78, "nr_requests", hostile),
    ]
    assert writes[0].time == pytest.approx(recorder.begin + 0.1, abs=1e-5)
    assert is_complete


def test_earlier_writes_are_omitted(recorder: Recorder) -> None:
    trace = recorder.record(recorder.print(0.1, 4711, "sh"), recorder.print(0.2, 4712, "sh"))
    writes, _ = trace.read_writes(recorder.begin + 0.15)
    assert [write.pid for write in writes] == [4712, os.getpid()]


def test_overwritten_writes_are_missing(recorder: Recorder) -> None:
    """Each CPU has its own buffer, and the full one has lost its oldest writes."""
    trace = recorder.record(recorder.print(0.1, 4711, "sh"), recorder.print(0.3, 4712, "sh"))
    recorder.overwrite(1, 17, recorder.begin + 0.2)
    writes, is_complete = trace.read_writes(recorder.begin)
    assert [write.pid for write in writes] == [4712, os.getpid()]
    assert not is_complete
    assert trace.read_writes(recorder.begin + 0.25)[1], "nothing since then is missing"


@pytest.mark.parametrize(("pid", "seconds"), [(1, 0.5), (None, -3600.0), (None, 3600.0)])
def test_unrecorded_test_is_error(recorder: Recorder, pid: int | None, seconds: float) -> None:
    """Another PID or time namespace, or structures of the kernel that differ."""
    trace = recorder.record(pid=pid, seconds=seconds)
    with pytest.raises(OSError, match="not recorded"):
        trace.read_writes(recorder.begin)


def test_kprobe_is_added_to_others(recorder: Recorder) -> None:
    """Opened with O_TRUNC, the file would lose the kprobes of other programs."""
    recorder.kprobes.write_text("#" * 200 + "p:other/probe do_exit")
    recorder.record()
    text = recorder.kprobes.read_text()
    assert text.startswith("p:hbatune/write sysfs_kf_write ")
    assert text.endswith("p:other/probe do_exit")
    assert (recorder.folder / "events/hbatune/write/enable").read_text() == "1"
    assert (recorder.folder / "options/overwrite").read_text() == "1", "the latest writes"


def test_forbidden_kprobe_is_error(recorder: Recorder) -> None:
    recorder.kprobes.unlink()
    with pytest.raises(OSError, match="No such file"):
        WriteTrace().start()
    assert not (recorder.folder / "tracing_on").exists(), "no instance was made"
