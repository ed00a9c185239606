"""`status` as a person sees it, and what the daemon says in the journal."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from hbatune.act import files, rollback_record
from hbatune.act.paths import Paths
from hbatune.agent import status
from hbatune.agent.host_state import DaemonHealth, DaemonState, assess_host
from hbatune.agent.orders import Handled, UnwrittenFile
from hbatune.agent.status import Status, Times
from hbatune.cli import main
from hbatune.cli.parser import make_parser
from hbatune.errors import UsageError
from hbatune.facts.health import LOST_IO
from hbatune.facts.model import Link
from hbatune.facts.udev import UnsetSetting
from hbatune.plan.rows import HostLook, Outcome, ServingAdapter
from hbatune.probe import history
from hbatune.processes import read_clock_id
from hbatune.shipped import load_texts
from hbatune.text.limit_text import Limit, LimitReason, describe_limit
from hbatune.watch.alerts import AlertCondition
from hbatune.watch.watch import Alert
from hbatune.workers import Process, find_process
from tests.unit.statuses import (
    GOOD,
    LEFT,
    RAMPING,
    WAITING,
    WRITER,
    Capture,
    current_times,
)

pytestmark = pytest.mark.usefixtures("state")
ADAPTER = ServingAdapter("0000:3b:00.0", "LPe32002", {"path": 12, "map": 1})
STUCK = replace(
    WAITING,
    handled=Handled.FAILED,
    outcome=Outcome.STUCK,
    reason=describe_limit(LimitReason(Limit.ADAPTER_WAITS)),
)


@pytest.mark.parametrize(
    ("saved_status", "code", "words"),
    [
        (GOOD, 0, "profile oltp, 12 endpoints"),
        (replace(GOOD, open=(LEFT,)), 1, "another program keeps setting it back"),
        (
            replace(GOOD, open=(replace(LEFT, writer=WRITER),)),
            1,
            'keeps setting it back; tuned.service (uid 0, "tuned") set nr_requests at',
        ),
        (replace(GOOD, open=(WAITING,)), 1, "tried 4 times since"),
        (replace(GOOD, open=(RAMPING,)), 0, "raises it again by one every 120 s"),
        (replace(GOOD, error="the disk is full"), 1, "the last pass failed: the disk is full"),
        (replace(GOOD, mistake="no such profile"), 1, "the last valid one remains active: no such"),
        (replace(GOOD, doubts=("x.toml: bad",)), 1, "settings stay unchanged: x.toml: bad"),
        (replace(GOOD, profile=None), 1, "no profile is active"),
        (replace(GOOD, profile=None, rolled_back=True), 1, "Everything was rolled back"),
        (replace(GOOD, counts={"ok": 44, "drift": 1}), 1, "has drifted: profile oltp, 44 of 45"),
        (replace(GOOD, counts={"fixed": 9}), 1, "nothing was compared"),
        (replace(GOOD, counts={"ok": 1, "excluded": 2}), 0, "1 of 1 setting as wanted, 2 left"),
        (replace(GOOD, counts={"ok": 1, "unmatched": 2}), 0, "as wanted; 2 disks without a rule"),
        (replace(GOOD, adapters=(*[ADAPTER] * 4,)), 0, "0000:3b:00.0  LPe32002, 12 paths, 1 map"),
        (replace(GOOD, adapters=(*[ADAPTER] * 6,)), 0, "and 2 more: `hbatune list`"),
        (replace(GOOD, skipped=("sda depth 3: low",)), 0, "Left alone sda depth 3: low"),
        (replace(GOOD, open=(STUCK,)), 1, "adding and removing disks of this adapter waits"),
        (replace(GOOD, unreadable=2), 1, "2 settings that could not be read"),
        (replace(GOOD, ready=False), 1, "looking at everything for the first time"),
    ],
)
def test_status_shows_daemon_health(
    saved_status: Status, code: int, words: str, capsys: Capture
) -> None:
    status.save(Paths.status, saved_status)
    assert main(["status"]) == code
    assert words.lower() in capsys.readouterr().out.lower()
    assert main(["status", "--json"]) == code
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "hbatune.status/1"
    is_idle = saved_status.profile is None or not saved_status.counts.get("ok")
    is_idle |= "drift" in saved_status.counts
    assert (document["running"], document["well"]) == (True, code == 0 or is_idle)
    assert document["status"]["endpoints"] == 12


@pytest.fixture(autouse=True)
def look(monkeypatch: pytest.MonkeyPatch) -> list[HostLook]:
    """Return the list whose last element is the host without a daemon."""
    looks = [HostLook(values=0)]
    monkeypatch.setattr("hbatune.operations.snapshot.look_at_host", lambda _: looks[-1])
    return looks


STOPPED = HostLook(profile="oltp", counts={"ok": 3}, values=3, findings={"info": 2})


@pytest.mark.parametrize(
    ("host", "state_name", "code"),
    [
        (STOPPED, "stopped", 4),
        (replace(STOPPED, failed=True), "failed", 4),
        (replace(STOPPED, installed=False), "applied", 4),
        (replace(STOPPED, counts={"ok": 3, "drift": 1}), "drifted", 1),
        (replace(STOPPED, counts={"ok": 3, "unreadable": 1}), "incomplete", 1),
        (replace(STOPPED, unfinished=True), "incomplete", 1),
        (replace(STOPPED, counts={"excluded": 3}), "not_compared", 1),
        (replace(STOPPED, mistake="unknown key"), "mistake", 1),
        (replace(STOPPED, profile=None), "not_set_up", 4),
        (replace(STOPPED, profile=None, rolled_back=True), "half_back", 1),
        (replace(STOPPED, rolled_back=True, values=0), "rolled_back", 4),
        (replace(STOPPED, hidden="/run/x"), "unknown", 4),
    ],
)
def test_state_without_daemon(
    host: HostLook, state_name: str, code: int, look: list[HostLook], capsys: Capture
) -> None:
    look.append(host)
    assert main(["status"]) == main(["status", "--short"]) == code
    capsys.readouterr()
    assert main(["status", "--json"]) == code
    document = json.loads(capsys.readouterr().out)
    assert (document["state"], document["daemon"]) == (state_name, "not_running")
    is_tuned = document["headline"].startswith(f"{document['hostname']} is tuned")
    assert is_tuned == (state_name in ("stopped", "applied"))


def test_lost_rules_of_others_are_shown(look: list[HostLook], capsys: Capture) -> None:
    lost = "60-io.rules, line 3, sets scheduler to none, but sda has another value"
    look.append(replace(STOPPED, lost_rules=(lost,)))
    main(["status"])
    assert f"udev {lost}" in " ".join(capsys.readouterr().out.split())


def test_findings_and_alerts_are_not_tuned() -> None:
    health = DaemonHealth(DaemonState.OK)
    assert assess_host(STOPPED, health, GOOD) == "tuned"
    found = replace(STOPPED, findings={"warning": 1})
    assert assess_host(found, health, GOOD) == "findings"
    alert = Alert(AlertCondition.P99, "id", "sda", "a", 12.5, 2.0, "p99", 1000.0, "D0-9")
    assert assess_host(STOPPED, health, replace(GOOD, alerts=(alert,))) == "alerting"


def test_lost_nvme_io_is_shown(capsys: Capture) -> None:
    alert = Alert(AlertCondition.COUNTERS, "id", "nvme0n1", "a", 3, 1, LOST_IO, 1000.0, "D0-8")
    status.save(Paths.status, replace(GOOD, alerts=(alert,)))
    assert main(["status"]) == 1
    output = " ".join(capsys.readouterr().out.split())
    assert (
        f"nvme0n1: {LOST_IO} rose by 3: I/O failed, since no path was left (D0-8), since" in output
    )


def test_every_remedy_is_a_command() -> None:
    for entry in load_texts("status.toml").values():
        for command, _ in entry["next"]:
            words = command.removeprefix("sudo ").format(profile="oltp", last_profile="oltp")
            program, *arguments = words.split()
            if program == "hbatune":
                parser, _ = make_parser(arguments)
                parser.parse_args(arguments)  # raises for a command that does not exist


def test_last_profile_is_named_after_rollback(capsys: Capture) -> None:
    rolled_back = replace(GOOD, profile=None, rolled_back=True)
    for last_profile, next_command in (("vm", "sudo hbatune apply --profile vm"), (None, "profi")):
        status.save(Paths.status, replace(rolled_back, last_profile=last_profile))
        main(["status"])
        assert f"Next   {next_command}" in capsys.readouterr().out.replace("hbatune profi", "profi")


def test_rollback_precedes_the_last_pass(capsys: Capture) -> None:
    status.save(Paths.status, GOOD)
    rollback_record.record_rollback(Paths())
    assert main(["status"]) == 1
    assert "was rolled back" in capsys.readouterr().out


def test_short_status_is_one_line(capsys: Capture) -> None:
    status.save(Paths.status, GOOD)
    assert main(["status", "--short"]) == 0
    assert capsys.readouterr().out == f"{os.uname().nodename}: tuned, oltp, 44/44, daemon ok\n"


def test_terminal_shows_a_mark(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    status.save(Paths.status, GOOD)
    monkeypatch.setattr("hbatune.text.status_lines.get_width", lambda: 80)
    main(["status"])
    assert capsys.readouterr().out.startswith("● ")


@pytest.mark.parametrize(("width", "is_shown"), [(131, False), (132, True)])
def test_wide_terminal_shows_versions(
    width: int, is_shown: bool, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    adapter = replace(ADAPTER, link=Link(8.0, 8, 16.0, 8), firmware="8.9.1.0")
    status.save(Paths.status, replace(GOOD, adapters=(adapter,)))
    monkeypatch.setattr("hbatune.text.status_lines.get_width", lambda: width)
    main(["status"])
    versions = "link 8 GT/s x8 of 16 GT/s x8, firmware 8.9.1.0"
    assert (versions in capsys.readouterr().out) == is_shown


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Have hbatune's rules in place, which could not set two disks."""
    rules = tmp_path / "89-hbatune.rules"
    rules.touch()
    monkeypatch.setattr(Paths, "udev_rules", rules)
    settings = (
        UnsetSetting(LEFT.target, LEFT.setting, "busy"),
        UnsetSetting("sdx", "scheduler", "commands"),
    )
    monkeypatch.setattr("hbatune.cli.commands.status.read_unset_settings", lambda: settings)


def test_unset_settings_are_shown(unset: None, capsys: Capture) -> None:
    assert main(["status"]) == 4
    both = f"udev's rules could not set {LEFT.setting} of {LEFT.target}, scheduler of sdx as the"
    assert both in " ".join(capsys.readouterr().out.split())
    assert main(["status", "--json"]) == 4
    entries = json.loads(capsys.readouterr().out)["unset"]
    assert entries[1] == {"target": "sdx", "setting": "scheduler", "reason": "commands"}


def test_user_reads_who_may_see_verdicts(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    def refuse(path: Path) -> None:
        raise UsageError(f"{path} is root's to read")

    Paths.history.touch()
    monkeypatch.setattr(history, "load", refuse)
    main(["status"])
    captured = capsys.readouterr()
    assert "Verdicts   for root only: `sudo hbatune status`\n" in captured.out
    assert captured.err == ""
    main(["status", "--json"])
    assert json.loads(capsys.readouterr().out)["verdicts"] is None


def test_repaired_settings_are_hidden(unset: None, capsys: Capture) -> None:
    status.save(Paths.status, replace(GOOD, open=(LEFT,)))
    main(["status"])
    output = " ".join(capsys.readouterr().out.split())
    assert f"could not set {LEFT.setting} of {LEFT.target} as the disks appeared" in output
    assert "sdx" not in output
    status.save(Paths.status, GOOD)
    main(["status"])
    assert "could not set" not in capsys.readouterr().out


def overdue(cause: str) -> tuple[Times, str]:
    """Return the times of a daemon that is stalled for this cause, and what `status` prints."""
    current_time = time.monotonic()
    match cause:
        case "status":
            return current_times(
                saved=current_time - 720, save_due=current_time - 540
            ), "its status 12 min ago"
        case "start":
            times = current_times(
                started=current_time - 720, pass_due=current_time - 420, pass_ended=None
            )
            return times, "it started 12 min ago and has not finished its first pass, limit 5 min"
        case "pass":
            times = current_times(pass_started=current_time - 720, pass_due=current_time - 420)
            return times, "the pass that started 12 min ago has not ended, limit 5 min"
    times = current_times(pass_ended=current_time - 1200, pass_due=current_time - 600)
    return times, "the last complete pass ended 20 min ago, limit 10 min"


@pytest.mark.parametrize("cause", ["status", "start", "pass", "no_pass"])
def test_overdue_daemon_is_stalled(cause: str, capsys: Capture) -> None:
    times, words = overdue(cause)
    status.save(Paths.status, replace(GOOD, times=times))
    assert main(["status"]) == 1
    out = capsys.readouterr().out
    assert "it is stalled: " in out
    assert words in out
    assert main(["status", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["state"], document["running"], document["well"]) == ("stalled", True, False)
    assert document["daemon"] == "stalled"
    assert [stall["cause"] for stall in document["stalls"]] == [cause]


def test_ages_are_in_seconds(capsys: Capture) -> None:
    current_time = time.monotonic()
    times = current_times(
        saved=current_time - 10, pass_started=current_time - 20, pass_ended=current_time - 30
    )
    status.save(Paths.status, replace(GOOD, times=times))
    assert main(["status", "--json"]) == 0
    ages = json.loads(capsys.readouterr().out)["ages"]
    passed = time.monotonic() - current_time
    for name, age in (("status", 10), ("current_pass", 20), ("last_pass", 30)):
        assert age <= ages[name] <= age + passed


def test_stopped_process_is_stalled(capsys: Capture) -> None:
    with subprocess.Popen(["sleep", "1000"]) as sleeper:
        try:
            status.save(Paths.status, replace(GOOD, process=find_process(sleeper.pid)))
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
    status.save(Paths.status, replace(GOOD, unwritten=(file,)))
    assert main(["status"]) == 1
    output = " ".join(capsys.readouterr().out.split())
    assert "it cannot write /metrics/hbatune.prom: No space left on device" in output
    assert "free space there" in output


def test_full_file_system_is_shown(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    status.save(Paths.status, GOOD)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as disk:
        disk.setattr(files, "publish", full)
        disk.setattr(files, "_put_file", full)
        assert status.save(Paths.status, replace(GOOD, passes=5)) is not None
        assert main(["status"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert f"it cannot write {Paths.status}: No space left on device" in out
    assert "5 passes" in out
    assert status.save(Paths.status, GOOD) is None
    assert main(["status"]) == 0


def test_abandoned_processes_need_attention(capsys: Capture) -> None:
    status.save(Paths.status, replace(GOOD, abandoned=1))
    assert main(["status"]) == 1
    assert "1 process of the daemon hangs in the kernel" in capsys.readouterr().out


def test_older_status_is_unknown(capsys: Capture) -> None:
    status.save(Paths.status, replace(GOOD, times=None))
    assert main(["status"]) == 1
    assert "cannot tell whether the daemon works" in capsys.readouterr().out
    assert main(["status", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["state"] == document["daemon"] == "unknown"


def test_earlier_boot_means_stopped(capsys: Capture) -> None:
    """Its process may be another one now, with the same number and the same start time."""
    boot, _, namespace = read_clock_id().partition(" ")
    assert namespace.startswith("time:")
    earlier_times = current_times(clock=f"{boot[::-1]} {namespace}")
    status.save(Paths.status, replace(GOOD, times=earlier_times))
    assert main(["status"]) == 4
    assert "not running" in capsys.readouterr().out


def test_foreign_time_namespace_is_unknown(capsys: Capture) -> None:
    """There the start times of all processes differ, so it seems to be gone."""
    times = current_times(clock=f"{read_clock_id().split()[0]} time:[1]")
    status.save(Paths.status, replace(GOOD, process=Process(1, 1), times=times))
    assert main(["status"]) == 2
    assert "another time namespace" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("saved_status", "state_name"),
    [
        (GOOD, "ok"),
        (replace(GOOD, profile=None), "idle"),
        (replace(GOOD, rolled_back=True, profile=None), "idle"),
        (replace(GOOD, ready=False), "starting"),
        (replace(GOOD, error="the disk is full"), "attention"),
    ],
)
def test_json_shows_daemon_state(saved_status: Status, state_name: str, capsys: Capture) -> None:
    status.save(Paths.status, saved_status)
    main(["status", "--json"])
    assert json.loads(capsys.readouterr().out)["daemon"] == state_name


def test_dead_daemon_exits_4(capsys: Capture) -> None:
    assert main(["status"]) == 4
    status.save(Paths.status, replace(GOOD, process=Process(2**22, 1)))
    assert main(["status"]) == 4
    assert "not running" in capsys.readouterr().out
    assert main(["status", "--json"]) == 4
    assert json.loads(capsys.readouterr().out)["running"] is False


def test_damaged_status_is_reported(capsys: Capture) -> None:
    Paths.status.write_text("{")
    assert main(["status"]) == 1
    assert "restart hbatune.service" in capsys.readouterr().err


def test_status_is_world_readable() -> None:
    before = os.umask(0o077)
    try:
        status.save(Paths.status, GOOD)
    finally:
        os.umask(before)
    assert Paths.status.stat().st_mode & 0o777 == 0o644


def test_json_shows_retry_times(capsys: Capture) -> None:
    status.save(Paths.status, replace(GOOD, open=(WAITING,)))
    main(["status", "--json"])
    [change] = json.loads(capsys.readouterr().out)["status"]["open"]
    assert change["retry"] == {"since": 1000.0, "tries": 4, "next": 5000.0}


def test_second_daemon_exits_3(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    """The lock is the other's for its life, whatever became of its status."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    code = (
        "import sys; from pathlib import Path; from hbatune.act.lock import Lock\n"
        "with Lock(Path(sys.argv[1])): print('locked', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(Paths.daemon_lock)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as daemon:
        assert daemon.stdout is not None
        daemon.stdout.readline()
        assert main(["daemon"]) == 3
        messages = capsys.readouterr().err
        assert f"another hbatune (process {daemon.pid}: `" in messages
        assert ") is the daemon of this machine" in messages
        assert "`hbatune status`" in messages
        daemon.communicate()
