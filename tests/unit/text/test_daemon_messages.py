"""Tests of hbatune/text/daemon_messages.py."""

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from hbatune.agent.orders import (
    ChangeOrigin,
    Handled,
    PassReason,
    PassReport,
    Writer,
    WriterKind,
)
from hbatune.errors import UsageError
from hbatune.plan.rows import Outcome
from hbatune.policy.config import UnmatchedName
from hbatune.shipped import load_texts
from hbatune.text import daemon_messages
from hbatune.text.daemon_messages import JournalReporter
from hbatune.watch.readings import Subjects
from tests.unit.statuses import GOOD, LEFT, RAMPING, WAITING, WRITER, By, report_change

MESSAGE_IDS = load_texts("notes.toml")["message_ids"]

pytestmark = pytest.mark.usefixtures("state")


def test_each_entry_has_its_own_id() -> None:
    source = Path(daemon_messages.__file__).read_text()
    entries = set(re.findall(r'_log\(\s*"(\w+)"', source)) | {"drifted", "tuned"}
    assert entries == set(MESSAGE_IDS)
    assert len(set(MESSAGE_IDS.values())) == len(MESSAGE_IDS)


def test_each_reason_has_its_text() -> None:
    texts = load_texts("notes.toml")
    assert set(texts["PassReason"]) == {reason.name for reason in PassReason}
    assert set(texts["ChangeOrigin"]) < {origin.name for origin in ChangeOrigin}


def test_written_value_is_logged() -> None:
    message, priority, fields = report_change(replace(LEFT, handled=Handled.WRITTEN))
    assert message == "sda: scheduler none → mq-deadline, at the start (sas-ssd)"
    assert priority == daemon_messages.NOTICE
    assert fields == {
        "MESSAGE_ID": MESSAGE_IDS["tuned"],
        "HBATUNE_TARGET": "sda",
        "HBATUNE_ID": "id-sda",
        "HBATUNE_SETTING": "scheduler",
        "HBATUNE_FROM": "none",
        "HBATUNE_TO": "mq-deadline",
        "HBATUNE_RULE": "sas-ssd",
    }


def test_drift_and_failures_differ() -> None:
    written = replace(LEFT, handled=Handled.WRITTEN)
    assert report_change(written, PassReason.AUDIT)[2]["MESSAGE_ID"] == MESSAGE_IDS["drifted"]
    assert "changed since it was set" in report_change(written, PassReason.AUDIT)[0]
    failed = replace(LEFT, handled=Handled.FAILED, outcome=Outcome.REFUSED, errno=22)
    message, priority, fields = report_change(failed)
    assert "failed: Invalid argument" in message
    assert (priority, fields["HBATUNE_ERRNO"]) == (daemon_messages.WARNING, "EINVAL")
    blocked = replace(failed, outcome=Outcome.BLOCKED, errno=None, reason="a command hangs")
    assert "failed: a command hangs" in report_change(blocked)[0]
    nameless = replace(failed, errno=524)
    assert report_change(nameless)[2]["HBATUNE_ERRNO"] == "524"
    assert "is none, not mq-deadline" in report_change(replace(LEFT, handled=Handled.REPORTED))[0]


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
    message, _, fields = report_change(
        replace(LEFT, handled=Handled.WRITTEN, origin=origin), reason
    )
    assert words in message
    assert fields["MESSAGE_ID"] == MESSAGE_IDS["tuned"]


@pytest.mark.parametrize(
    ("writer", "words"),
    [
        (WRITER, 'tuned.service (uid 0, "tuned") set nr_requests at 19'),
        (replace(WRITER, unit=None, cgroup="/pod", uid=7), '/pod (uid 7, "tuned") set nr_req'),
        (replace(WRITER, comm='x" (uid 0)'), '(uid 0, "x\' (uid 0)") set'),
        (replace(WRITER, rules=("/a.rules", "/b.rules")), ", as in /a.rules or /b.rules (sas-ssd)"),
        (
            replace(WRITER, kind=WriterKind.ENDED, comm=None),
            "process 4711, which has ended, set nr_requests",
        ),
        (
            replace(WRITER, kind=WriterKind.ENDED, comm='a"b'),
            """process 4711 ("a'b"), which has ended, set nr_requests""",
        ),
        (replace(WRITER, kind=WriterKind.HBATUNE), "a command of hbatune set nr_requests at"),
        (
            Writer(WriterKind.KERNEL),
            "no process wrote to it, so the driver or the kernel set it",
        ),
        (Writer(WriterKind.UNKNOWN), "it is unknown who set it"),
    ],
)
def test_drift_names_writer(writer: Writer, words: str) -> None:
    drift = replace(LEFT, handled=Handled.WRITTEN, writer=writer)
    assert words in report_change(drift, PassReason.AUDIT)[0]
    assert words in report_change(replace(drift, handled=Handled.REPORTED))[0]


def test_writer_is_field_of_entry() -> None:
    def get_field(writer: Writer) -> str:
        return report_change(replace(LEFT, handled=Handled.WRITTEN, writer=writer))[2][
            "HBATUNE_WRITER"
        ]

    assert get_field(WRITER) == "tuned.service"
    assert get_field(replace(WRITER, unit=None)) == "/system.slice/tuned.service"
    assert get_field(Writer(WriterKind.KERNEL)) == "kernel"


def test_reset_names_only_processes() -> None:
    reset = replace(LEFT, handled=Handled.WRITTEN, origin=ChangeOrigin.RESET)
    message = report_change(replace(reset, writer=Writer(WriterKind.KERNEL)), PassReason.EVENT)[0]
    assert message.endswith("reset by the kernel (sas-ssd)")
    assert "tuned.service" in report_change(replace(reset, writer=WRITER), PassReason.EVENT)[0]


def test_missing_writers_are_logged() -> None:
    by = By()
    JournalReporter(by).unnamed("Operation not permitted")
    [(message, priority, _)] = by.entries
    assert message.endswith("does not name processes that change settings: Operation not permitted")
    assert priority == daemon_messages.NOTICE


def test_failure_shows_next_try() -> None:
    failed = replace(WAITING, handled=Handled.FAILED, outcome=Outcome.REFUSED, errno=11)
    assert ", try 4, the next one at " in report_change(failed)[0]


def test_ramp_is_logged_as_notice() -> None:
    message, priority, fields = report_change(RAMPING)
    assert message == (
        "sda: the device's queue was full at depth 60. The kernel lowered queue_depth and raises "
        "it again by one every 120 s, up to 64. A local rule for 60 prevents this"
    )
    assert (priority, fields["MESSAGE_ID"]) == (daemon_messages.NOTICE, MESSAGE_IDS["ramping"])


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        (PassReason.RELOAD, "after a reload"),
        (PassReason.CONFIGURED, "as the configuration has changed"),
        (PassReason.OVERRUN, "after lost events"),
    ],
)
def test_full_scan_names_its_cause(reason: PassReason, cause: str) -> None:
    by = By()
    JournalReporter(by).passed(reason, PassReport(subjects=Subjects()))
    assert by.entries[-1][0] == f"all settings were scanned {cause}, 0 values set"


def test_abandoned_setting_suggests_action() -> None:
    by = By()
    JournalReporter(by).left([LEFT])
    [(message, priority, _)] = by.entries
    assert "for the third time in ten minutes, so the daemon skips it" in message
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
    messages = [message for message, _, _ in by.entries]
    assert [("sdx" in message, "sdy" in message) for message in messages] == [
        *((True, False), (False, True), (False, True))
    ]
    assert messages[1] == "[site] exclude: 'sdy' does not match a disk or adapter of this machine"
    assert {priority for _, priority, _ in by.entries} == {daemon_messages.WARNING}
    assert not any("\x1b" in message for message in messages)


def test_daemon_failures_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    by = By()
    words = JournalReporter(by)
    words.passed(PassReason.START, PassReport(error="the disk is full", hint="make room"))
    words.overrun()
    words.reloaded(None, UsageError("no such profile", hint="did you mean oltp?"))
    words.restored("3 values could not be put back")
    words.failed("internal error: KeyError: 'sda'")
    assert [priority for _, priority, _ in by.entries] == [
        *(
            daemon_messages.ERROR,
            daemon_messages.WARNING,
            daemon_messages.ERROR,
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
    assert len(by.entries) == 6, "said once"
    assert by.states == ["STATUS=profile oltp, 12 endpoints"] * 3
