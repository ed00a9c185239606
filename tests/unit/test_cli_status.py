"""`status` as a person sees it, and what the daemon says in the journal."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from hbatune.act import files, paths
from hbatune.agent import status
from hbatune.agent.brief import read_brief
from hbatune.agent.client import reload_daemon
from hbatune.agent.orders import (
    ChangeOrigin,
    Handled,
    NewEndpointProbe,
    PassReason,
    PassReport,
    Retry,
    SettingChange,
    UnwrittenFile,
)
from hbatune.agent.status import DaemonHealth, DaemonState, Status, Times
from hbatune.cli import main
from hbatune.errors import UsageError
from hbatune.plan.rows import Outcome
from hbatune.policy.config import UnmatchedName
from hbatune.processes import read_clock_id
from hbatune.text import daemon_messages
from hbatune.text.daemon_messages import JournalReporter
from hbatune.text.status_lines import show_status
from hbatune.watch.readings import Subjects
from hbatune.workers import Process, find_process, find_this_process
from tests.unit.statuses import current_times, good_status

LEFT = SettingChange("sda", "id-sda", "scheduler", "none", "mq-deadline", "sas-ssd", Handled.LEFT)
WAITING = replace(LEFT, handled=Handled.WAITING, retry=Retry(1000.0, 4, 5000.0))
RAMPING = SettingChange(
    "sda", "id-sda", "queue_depth", 60, 64, "depth", Handled.RAMPING, step_seconds=120.0
)
GOOD = good_status()
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STATUS", "HISTORY", "DAEMON_LOCK", "DAEMON_LOCK_SPARE"):
        monkeypatch.setattr(paths, name, tmp_path / name.lower())


@pytest.mark.parametrize(
    ("found", "code", "words"),
    [
        (GOOD, 0, "profile oltp, 12 endpoints"),
        (replace(GOOD, open=(LEFT,)), 1, "another program keeps setting it back"),
        (replace(GOOD, open=(WAITING,)), 1, "tried 4 times since"),
        (replace(GOOD, open=(RAMPING,)), 0, "raises it again by one every 120 s"),
        (replace(GOOD, error="the disk is full"), 1, "the last pass failed: the disk is full"),
        (replace(GOOD, mistake="no such profile"), 1, "the last good one stays in force: no such"),
        (replace(GOOD, profile=None), 0, "no profile is active"),
        (replace(GOOD, profile=None, rolled_back=True), 0, "Everything was rolled back"),
        (replace(GOOD, unreadable=2), 1, "2 settings that could not be read"),
        (replace(GOOD, ready=False), 1, "looking at everything for the first time"),
    ],
)
def test_status_shows_daemon_health(found: Status, code: int, words: str, capsys: Capture) -> None:
    status.save(paths.STATUS, found)
    assert main(["status"]) == code
    assert words.lower() in capsys.readouterr().out.lower()
    assert main(["status", "--json"]) == code
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "hbatune.status/1"
    assert (document["running"], document["well"]) == (True, code == 0)
    assert document["status"]["endpoints"] == 12


def overdue(cause: str) -> tuple[Times, str]:
    """Return the times of a daemon that is stalled for this cause, and what `status` prints."""
    now = time.monotonic()
    match cause:
        case "status":
            return current_times(saved=now - 720, save_due=now - 540), "its status 12 min ago"
        case "start":
            times = current_times(started=now - 720, pass_due=now - 420, pass_ended=None)
            return times, "it started 12 min ago and has not finished its first pass, limit 5 min"
        case "pass":
            times = current_times(pass_started=now - 720, pass_due=now - 420)
            return times, "the pass that started 12 min ago has not ended, limit 5 min"
    times = current_times(pass_ended=now - 1200, pass_due=now - 600)
    return times, "the last complete pass ended 20 min ago, limit 10 min"


@pytest.mark.parametrize("cause", ["status", "start", "pass", "no_pass"])
def test_overdue_daemon_is_stalled(cause: str, capsys: Capture) -> None:
    times, words = overdue(cause)
    status.save(paths.STATUS, replace(GOOD, times=times))
    assert read_brief(paths.STATUS) is None
    assert main(["status"]) == 1
    out = capsys.readouterr().out
    assert "The daemon is stalled: " in out
    assert words in out
    assert main(["status", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["state"], document["running"], document["well"]) == ("stalled", True, False)
    assert [stall["cause"] for stall in document["stalls"]] == [cause]


def test_ages_are_in_seconds(capsys: Capture) -> None:
    now = time.monotonic()
    times = current_times(saved=now - 10, pass_started=now - 20, pass_ended=now - 30)
    status.save(paths.STATUS, replace(GOOD, times=times))
    assert main(["status", "--json"]) == 0
    ages = json.loads(capsys.readouterr().out)["ages"]
    passed = time.monotonic() - now
    for name, age in (("status", 10), ("current_pass", 20), ("last_pass", 30)):
        assert age <= ages[name] <= age + passed


def test_stopped_process_is_stalled(capsys: Capture) -> None:
    with subprocess.Popen(["sleep", "1000"]) as sleeper:
        try:
            status.save(paths.STATUS, replace(GOOD, process=find_process(sleeper.pid)))
            assert main(["status"]) == 0
            sleeper.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, sleeper.pid, os.WSTOPPED | os.WNOWAIT)
            assert main(["status"]) == 1
            assert f"a signal has stopped its process {sleeper.pid}" in capsys.readouterr().out
            sleeper.send_signal(signal.SIGCONT)
            os.waitid(os.P_PID, sleeper.pid, os.WCONTINUED | os.WNOWAIT)
            assert main(["status"]) == 0
        finally:
            sleeper.kill()


def test_unwritten_files_are_named(capsys: Capture) -> None:
    file = UnwrittenFile("/metrics/hbatune.prom", "No space left on device")
    status.save(paths.STATUS, replace(GOOD, unwritten=(file,)))
    assert main(["status"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "it cannot write /metrics/hbatune.prom: No space left on device" in said
    assert "free space there" in said


def test_full_file_system_is_shown(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    status.save(paths.STATUS, GOOD)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as disk:
        disk.setattr(files, "publish", full)
        disk.setattr(files, "_put_file", full)
        assert status.save(paths.STATUS, replace(GOOD, passes=5)) is not None
        assert main(["status"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert f"it cannot write {paths.STATUS}: No space left on device" in out
    assert "5 passes" in out
    assert status.save(paths.STATUS, GOOD) is None
    assert main(["status"]) == 0


def test_abandoned_processes_need_attention(capsys: Capture) -> None:
    status.save(paths.STATUS, replace(GOOD, abandoned=1))
    assert main(["status"]) == 1
    assert "1 process of the daemon hangs in the kernel" in capsys.readouterr().out


def test_older_status_is_unknown(capsys: Capture) -> None:
    status.save(paths.STATUS, replace(GOOD, times=None))
    assert main(["status"]) == 1
    assert "Cannot tell whether the daemon works" in capsys.readouterr().out
    assert main(["status", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["state"] == "unknown"


def test_earlier_boot_means_stopped(capsys: Capture) -> None:
    """Its process may be another one now, with the same number and the same start time."""
    boot, _, namespace = read_clock_id().partition(" ")
    assert namespace.startswith("time:")
    other = current_times(clock=f"{boot[::-1]} {namespace}")
    status.save(paths.STATUS, replace(GOOD, times=other))
    assert main(["status"]) == 4
    assert "is not running" in capsys.readouterr().out


def test_foreign_time_namespace_is_unknown(capsys: Capture) -> None:
    """There the start times of all processes differ, so it seems to be gone."""
    times = current_times(clock=f"{read_clock_id().split()[0]} time:[1]")
    status.save(paths.STATUS, replace(GOOD, process=Process(1, 1), times=times))
    assert main(["status"]) == 2
    assert "another time namespace" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("found", "word"),
    [
        (GOOD, "ok"),
        (replace(GOOD, profile=None), "idle"),
        (replace(GOOD, rolled_back=True, profile=None), "idle"),
        (replace(GOOD, ready=False), "starting"),
        (replace(GOOD, error="the disk is full"), "attention"),
    ],
)
def test_json_shows_state_name(found: Status, word: str, capsys: Capture) -> None:
    status.save(paths.STATUS, found)
    main(["status", "--json"])
    assert json.loads(capsys.readouterr().out)["state"] == word


@pytest.mark.parametrize("found", [GOOD, replace(GOOD, last=None), replace(GOOD, passes=1)])
def test_brief_matches_full_status(found: Status, capsys: Capture) -> None:
    status.save(paths.STATUS, found)
    assert main(["status"]) == 0
    told = capsys.readouterr().out
    assert read_brief(paths.STATUS) is not None
    show_status(found, DaemonHealth(DaemonState.OK), ())
    assert told == capsys.readouterr().out


@pytest.mark.parametrize(
    "found",
    [
        replace(GOOD, open=(RAMPING,)),
        replace(GOOD, error="the disk is full"),
        replace(GOOD, mistake="no such profile"),
        replace(GOOD, profile=None),
        replace(GOOD, profile="\x1b[31m"),
        replace(GOOD, rolled_back=True),
        replace(GOOD, unreadable=2),
        replace(GOOD, ready=False),
        replace(GOOD, since=1e300),
        replace(GOOD, passes=True),
        replace(GOOD, schema="hbatune.status/2"),
        replace(GOOD, process=Process(2**22, 1)),
        replace(GOOD, process=replace(find_this_process(), start_time=1)),
        replace(GOOD, times=None),
        replace(GOOD, times=current_times(clock="another")),
        replace(GOOD, times=current_times(saved=1e15)),
        replace(GOOD, abandoned=1),
    ],
)
def test_eventful_status_skips_brief(found: Status) -> None:
    status.save(paths.STATUS, found)
    assert read_brief(paths.STATUS) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "null", "[" * 60_000, "\xff", "1" * 99_999])
def test_damaged_status_skips_brief(text: str) -> None:
    paths.STATUS.write_text(text)
    assert read_brief(paths.STATUS) is None


def test_brief_status_skips_pipe() -> None:
    os.mkfifo(paths.STATUS)
    assert read_brief(paths.STATUS) is None


def test_unknown_field_skips_brief() -> None:
    """It may be something to tell."""
    fields = {**json.loads(msgspec.json.encode(GOOD)), "new": None}
    paths.STATUS.write_text(json.dumps(fields))
    assert read_brief(paths.STATUS) is None


def test_dead_daemon_exits_4(capsys: Capture) -> None:
    assert main(["status"]) == 4
    status.save(paths.STATUS, replace(GOOD, process=Process(2**22, 1)))
    assert main(["status"]) == 4
    assert "is not running" in capsys.readouterr().out
    assert main(["status", "--json"]) == 4
    assert json.loads(capsys.readouterr().out)["running"] is False


def test_damaged_status_is_reported(capsys: Capture) -> None:
    paths.STATUS.write_text("{")
    assert main(["status"]) == 1
    assert "restart hbatune.service" in capsys.readouterr().err


def test_status_is_world_readable() -> None:
    before = os.umask(0o077)
    try:
        status.save(paths.STATUS, GOOD)
    finally:
        os.umask(before)
    assert paths.STATUS.stat().st_mode & 0o777 == 0o644


def test_running_daemon_is_nudged() -> None:
    with subprocess.Popen(["sleep", "1000"]) as sleeper:
        from hbatune.workers import find_process

        status.save(paths.STATUS, replace(GOOD, process=find_process(sleeper.pid)))
        reload_daemon(paths.STATUS)
        assert sleeper.wait(30) == -signal.SIGHUP
    reload_daemon(paths.STATUS)  # it is gone by now


class By:
    """Remembers what it was told."""

    watchdog: float | None = None

    def __init__(self) -> None:
        self.entries: list[tuple[str, int, Mapping[str, str]]] = []
        self.states: list[str] = []

    def notify(self, state: str) -> None:
        self.states.append(state)

    def log(self, message: str, priority: int, fields: Mapping[str, str]) -> None:
        self.entries.append((message, priority, fields))


def said(
    changed: SettingChange, reason: PassReason = PassReason.START
) -> tuple[str, int, Mapping[str, str]]:
    by = By()
    JournalReporter(by).passed(reason, PassReport("oltp", 1, (changed,)))
    [entry] = by.entries
    return entry


def test_written_value_is_logged() -> None:
    message, priority, fields = said(replace(LEFT, handled=Handled.WRITTEN))
    assert message == "sda: scheduler none → mq-deadline, at the start (sas-ssd)"
    assert priority == daemon_messages.NOTICE
    assert fields == {
        "MESSAGE_ID": daemon_messages.TUNED_ID,
        "HBATUNE_TARGET": "sda",
        "HBATUNE_ID": "id-sda",
        "HBATUNE_SETTING": "scheduler",
        "HBATUNE_FROM": "none",
        "HBATUNE_TO": "mq-deadline",
        "HBATUNE_RULE": "sas-ssd",
    }


def test_drift_and_failures_differ() -> None:
    written = replace(LEFT, handled=Handled.WRITTEN)
    assert said(written, PassReason.AUDIT)[2]["MESSAGE_ID"] == daemon_messages.DRIFTED_ID
    assert "changed since it was set" in said(written, PassReason.AUDIT)[0]
    failed = replace(LEFT, handled=Handled.FAILED, outcome=Outcome.REFUSED, errno=22)
    message, priority, fields = said(failed)
    assert "failed: Invalid argument" in message
    assert (priority, fields["HBATUNE_ERRNO"]) == (daemon_messages.WARNING, "EINVAL")
    nameless = replace(failed, errno=524)
    assert said(nameless)[2]["HBATUNE_ERRNO"] == "524"
    assert "is none, not mq-deadline" in said(replace(LEFT, handled=Handled.REPORTED))[0]


@pytest.mark.parametrize(
    ("origin", "reason", "words"),
    [
        (ChangeOrigin.NEW, PassReason.EVENT, "as it appeared"),
        (ChangeOrigin.RESET, PassReason.EVENT, "reset by the kernel"),
        (ChangeOrigin.UNSET, PassReason.AUDIT, "at another try"),
        (ChangeOrigin.NEW, PassReason.START, "at the start"),
    ],
)
def test_written_value_names_origin(origin: ChangeOrigin, reason: PassReason, words: str) -> None:
    message, _, fields = said(replace(LEFT, handled=Handled.WRITTEN, origin=origin), reason)
    assert words in message
    assert fields["MESSAGE_ID"] == daemon_messages.TUNED_ID


def test_failure_shows_next_try() -> None:
    failed = replace(WAITING, handled=Handled.FAILED, outcome=Outcome.REFUSED, errno=11)
    assert ", try 4, the next one at " in said(failed)[0]


def test_ramp_is_logged_as_notice() -> None:
    message, priority, fields = said(RAMPING)
    assert message == (
        "sda: the device was full at depth 60; the kernel lowered queue_depth and raises it again "
        "by one every 120 s, up to 64; a site's rule for 60 keeps the device from being full"
    )
    assert (priority, fields["MESSAGE_ID"]) == (daemon_messages.NOTICE, daemon_messages.RAMPING_ID)


def test_json_shows_retry_times(capsys: Capture) -> None:
    status.save(paths.STATUS, replace(GOOD, open=(WAITING,)))
    main(["status", "--json"])
    [change] = json.loads(capsys.readouterr().out)["status"]["open"]
    assert change["retry"] == {"since": 1000.0, "tries": 4, "next": 5000.0}


def test_abandoned_setting_suggests_action() -> None:
    by = By()
    JournalReporter(by).left([LEFT])
    [(message, priority, _)] = by.entries
    assert "for the third time in ten minutes and is left so" in message
    assert priority == daemon_messages.WARNING


def test_unmatched_name_is_reported_once() -> None:
    by = By()
    words = JournalReporter(by)
    lost, late = UnmatchedName("exclude", "sdx\x1b"), UnmatchedName("exclude", "sdy")
    for names in ((lost, late), (lost,), (lost,), (lost, late)):
        words.passed(PassReason.AUDIT, PassReport(subjects=Subjects(), unmatched=names))
    # A pass that has seen nothing says nothing of it.
    words.passed(PassReason.AUDIT, PassReport(locked=True))
    words.passed(PassReason.AUDIT, PassReport(subjects=Subjects(), unmatched=(lost, late)))
    told = [message for message, _, _ in by.entries]
    assert [("sdx" in each, "sdy" in each) for each in told] == [
        *((True, False), (False, True), (False, True))
    ]
    assert told[1] == "[site] exclude: 'sdy' is no disk or adapter of this machine"
    assert {priority for _, priority, _ in by.entries} == {daemon_messages.WARNING}
    assert not any("\x1b" in each for each in told)


def test_daemon_failures_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    by = By()
    words = JournalReporter(by)
    words.passed(PassReason.START, PassReport(error="the disk is full", hint="make room"))
    words.overrun()
    words.reloaded(None, UsageError("no such profile", hint="did you mean oltp?"))
    words.probed(NewEndpointProbe(error="the history is full"))
    words.restored("3 values could not be put back")
    words.met_fault("a fault of hbatune itself: KeyError: 'sda'")
    assert [priority for _, priority, _ in by.entries] == [
        *(
            daemon_messages.ERROR,
            daemon_messages.WARNING,
            daemon_messages.ERROR,
            daemon_messages.WARNING,
            daemon_messages.ERROR,
        ),
        daemon_messages.ERROR,
    ]
    assert by.entries[0][0] == "the pass failed: the disk is full (make room)"
    assert "make room" in by.entries[0][0]
    assert "did you mean oltp?" in by.entries[2][0]

    def full(path: Path, data: bytes, **_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("hbatune.act.files.publish", full)
    monkeypatch.setattr("hbatune.act.files.replace", full)
    for _ in range(3):
        words.save(GOOD)
    assert len(by.entries) == 7, "said once"
    assert by.states == ["STATUS=profile oltp, 12 endpoints"] * 3


def test_second_daemon_exits_3(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    """The lock is the other's for its life, whatever became of its status."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    code = (
        "import sys; from pathlib import Path; from hbatune.act.lock import Lock\n"
        "with Lock(Path(sys.argv[1])): print('locked', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(paths.DAEMON_LOCK)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert main(["daemon"]) == 3
        said = capsys.readouterr().err
        assert f"another hbatune (process {other.pid}: `" in said
        assert ") is the daemon of this machine" in said
        assert "`hbatune status`" in said
        other.communicate()
