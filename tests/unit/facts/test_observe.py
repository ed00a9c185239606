"""What else is at work: udev rules that set attributes, and the options of mounts."""

import os
from pathlib import Path

import pytest

from hbatune.facts import observe
from hbatune.facts.health import UdevDisks
from hbatune.facts.observe import parse_assignments, parse_gigabits
from tests.unit.machines import endpoint


def list_assignments(text: str) -> list[tuple[int, str, str | None]]:
    return [(rule.line, rule.attribute, rule.value) for rule in parse_assignments("f", text)]


def test_rule_assignments_differ_from_matches() -> None:
    assert list_assignments(
        '# ATTR{queue/scheduler}="none"\n'
        'KERNEL=="sd*", ATTR{queue/rotational}=="0", ATTR{queue/scheduler}="bfq"\n'
        'ATTR{queue/nr_requests}!="2", ATTR{queue/read_ahead_kb} := "64"\n'
    ) == [(2, "queue/scheduler", "bfq"), (3, "queue/read_ahead_kb", "64")]


def test_continued_rule_counts_once() -> None:
    text = '\nACTION=="add", \\\n# a word in between\n  ATTR{queue/scheduler}="none"'
    assert list_assignments(text) == [(2, "queue/scheduler", "none")]


def test_shell_write_counts() -> None:
    text = """RUN+="/bin/sh -c 'echo 1024 > /sys/block/%k/queue/nr_requests'" """
    assert list_assignments(text) == [(1, "queue/nr_requests", None)]
    assert list_assignments('RUN+="/usr/bin/cat /sys/block/%k/queue/nr_requests"') == []


def test_rule_text_is_escaped() -> None:
    [rule] = parse_assignments("/etc/\x1b.rules", 'ATTR{queue/scheduler}="\x1b[2J\u202e"')
    assert (rule.file, rule.value) == ("/etc/\\x1b.rules", "\\x1b[2J\\u202e")


NIMBLE = """\
KERNEL=="dm-*", ENV{DM_UUID}!="*6c9ce9*", GOTO="end"
KERNEL=="sd*", ENV{ID_SERIAL}!="*6c9ce9*", GOTO="end"
KERNEL=="sd*", ENV{ID_VENDOR}=="VMware", GOTO="end"
ATTR{queue/nr_requests}="512"
LABEL="end"
"""


@pytest.mark.parametrize(
    ("text", "of"),
    [
        ('ENV{ID_VENDOR}=="PURE", ATTR{device/timeout}="60"', ("PURE",)),
        ('ATTRS{vendor}=="VMware*", ATTRS{model}=="Virtual disk*", ATTR{timeout}="180"',
         ("VMware*", "Virtual disk*")),
        ('ATTR{model}=="VASTData", ATTR{iopolicy}="round-robin"', ("VASTData",)),
        ('ENV{ID_VENDOR}!="PURE", ATTR{queue/scheduler}="bfq"', ()),
        ('ACTION=="add", ATTR{queue/scheduler}="bfq"', ()),
        (NIMBLE, ("*6c9ce9*",)),
    ],
)  # fmt: skip
def test_rule_names_attribute_owner(text: str, of: tuple[str, ...]) -> None:
    [rule] = parse_assignments("f", text)
    assert rule.of == of


def test_rules_file_overrides_namesake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [tmp_path / "etc", tmp_path / "lib", tmp_path / "none"]
    for folder in folders[:2]:
        folder.mkdir()
        (folder / "60-a.rules").write_text(f'ATTR{{queue/scheduler}}="{folder.name}"')
    (folders[1] / "61-b.rules").write_bytes(b'ATTR{queue/nomerges}="2"\xff')
    (folders[1] / "62-hbatune.rules").write_text('ATTR{queue/nomerges}="1"')
    (folders[1] / "README").write_text('ATTR{queue/nomerges}="0"')
    monkeypatch.setattr(observe, "_FOLDERS", tuple(map(str, folders)))
    rules = observe.read_udev_rules()
    assert [(rule.attribute, rule.value) for rule in rules] == [
        ("queue/scheduler", "etc"),
        ("queue/nomerges", "2"),
    ]


def test_irregular_rules_are_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "60-a.rules")
    (tmp_path / "61-b.rules").symlink_to("/dev/zero")
    line = 'ATTR{queue/nomerges}="2"\n'
    (tmp_path / "62-c.rules").write_text(line + "#" * (2 << 20))
    monkeypatch.setattr(observe, "_FOLDERS", (str(tmp_path),))
    assert [rule.value for rule in observe.read_udev_rules()] == ["2"]


def test_port_speeds_are_parsed() -> None:
    assert parse_gigabits("4 Gbit, 8 Gbit, 16 Gbit") == [4, 8, 16]
    assert parse_gigabits("12.0 Gbit") == [12]
    assert parse_gigabits("Unknown") == parse_gigabits("Phy disabled") == []


@pytest.mark.parametrize(
    ("line", "disks"),
    [
        ('ATTR{queue/scheduler}="bfq"', UdevDisks(("*",))),
        ('KERNEL=="sd*|vd*", ATTR{queue/scheduler}="bfq"', UdevDisks(("sd*", "vd*"))),
        (
            'ACTION=="add|change", SUBSYSTEM=="block", ENV{DEVTYPE}=="disk", KERNEL=="sd[a-z]", '
            'ATTR{queue/rotational}!="0", ATTR{queue/scheduler}="bfq"',
            UdevDisks(("sd[a-z]",), True),
        ),
        ('ACTION=="change", ATTR{queue/scheduler}="bfq"', UdevDisks(())),
        ('SUBSYSTEM=="scsi", ATTR{queue/scheduler}="bfq"', UdevDisks(())),
        ('ENV{ID_MODEL}=="PERC*", ATTR{queue/scheduler}="bfq"', None),
        ('KERNEL!="sd*", ATTR{queue/scheduler}="bfq"', None),
        ('TEST=="queue/iosched", ATTR{queue/scheduler}="bfq"', None),
    ],
)
def test_disks_of_a_rule(line: str, disks: UdevDisks | None) -> None:
    [rule] = observe.parse_assignments("60-a.rules", line)
    assert rule.disks == disks


@pytest.mark.parametrize(
    ("jump", "is_certain"),
    [
        ('SUBSYSTEM!="block", GOTO="end"', True),
        ('ACTION!="add|change", GOTO="end"', True),
        ('KERNEL=="sd*", GOTO="end"', False),
        ('ENV{ID_BUS}=="usb", GOTO="end"', False),
    ],
)
def test_jump_makes_later_rules_uncertain(jump: str, is_certain: bool) -> None:
    text = f'{jump}\nATTR{{queue/scheduler}}="bfq"\n'
    [rule] = observe.parse_assignments("60-a.rules", text)
    assert (rule.disks == UdevDisks(("*",))) is is_certain


SUSE = """
SUBSYSTEM!="block", GOTO="scheduler_end"
IMPORT{cmdline}="elevator"
ENV{elevator}=="?*", GOTO="scheduler_end"
ATTR{queue/rotational}!="0", TEST!="%S%p/mq/1", ATTR{queue/scheduler}="bfq"
LABEL="scheduler_end"
"""
"""As in SUSE's 60-io-scheduler.rules."""

FEDORA = 'ACTION=="add", SUBSYSTEM=="block", KERNEL=="sd*[!0-9]", ATTR{queue/scheduler}="bfq"'
LOCAL = 'KERNEL=="sdb", ATTR{queue/scheduler}="bfq"'


@pytest.mark.parametrize(
    ("files", "shares", "expected"),
    [
        ({"/usr/lib/udev/rules.d/60-io-scheduler.rules": SUSE}, {}, {"sda"}),
        ({"/usr/lib/udev/rules.d/60-block-scheduler.rules": FEDORA}, {}, {"sda", "sdb"}),
        (
            {"/usr/lib/udev/rules.d/60-block-scheduler.rules": FEDORA},
            {"ionice": ("db.service",)},
            (),
        ),
        # The last rule decides, and this one is an administrator's.
        (
            {"/usr/lib/udev/rules.d/60-a.rules": FEDORA, "/etc/udev/rules.d/70.rules": LOCAL},
            {},
            {"sda"},
        ),
        ({"/etc/udev/rules.d/60-io-scheduler.rules": SUSE}, {}, ()),
        ({}, {}, ()),
    ],
)
def test_distribution_rule_is_found_for_bfq(
    monkeypatch: pytest.MonkeyPatch,
    files: dict[str, str],
    shares: dict[str, tuple[str, ...]],
    expected: set[str] | tuple[()],
) -> None:
    rules = [rule for file, text in files.items() for rule in parse_assignments(file, text)]
    monkeypatch.setattr(observe, "read_udev_rules", lambda: tuple(rules))
    monkeypatch.setattr("hbatune.facts.services.find_io_shares", lambda: shares)
    disks = [endpoint(target="sda", rotational=True), endpoint(target="sdb", rotational=False)]
    files_by_id = observe.find_distribution_rules(disks)
    assert set(files_by_id) == {disk.id for disk in disks if disk.target in expected}


def test_module_options_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        observe, "_MODPROBE_FOLDERS", (str(tmp_path / "etc"), str(tmp_path / "usr"))
    )
    for name, text in {
        "etc/site.conf": "# options mpt3sas a=1\noptions mpt3sas max_queue_depth=100 \\\n b=2\n",
        "etc/hbatune.conf": "options mpt3sas max_queue_depth=300\n",
        "usr/site.conf": "options mpt3sas max_queue_depth=400\n",
        "usr/a.conf": "options\noptions virtio-scsi x=1\noptions virtio_scsi y\nblacklist x\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    options = observe.read_module_options({"mpt3sas", "virtio_scsi"})
    assert [(Path(o.file).name, o.line, o.module, o.option, o.value) for o in options] == [
        ("a.conf", 2, "virtio_scsi", "x", "1"),
        ("a.conf", 3, "virtio_scsi", "y", ""),
        ("site.conf", 2, "mpt3sas", "max_queue_depth", "100"),
        ("site.conf", 2, "mpt3sas", "b", "2"),
    ]
    assert {Path(option.file).parent.name for option in options[2:]} == {"etc"}
