"""The generated file of modprobe.d: no text breaks out of its line, whatever it holds."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbatune.act import system
from hbatune.policy.profile import Exactly, OptionRule
from hbatune.render import UnsafeNameError, comment, render_template

HOSTILE = st.one_of(
    st.text(),
    st.text(st.sampled_from("\\\n\r\v\f\x1c\x85\u2028 \t\"'#$`{}%=,options install")),
)


def line(value: int | str = -1, **overrides: Any) -> OptionRule:
    fields = {
        "name": "mpt3sas-commands",
        "module": "mpt3sas",
        "option": "max_queue_depth",
        "effect": Exactly(value),
        "because": "all there are",
        "source": "D4-3",
        "file": "oltp.toml",
    }
    return OptionRule(**{**fields, **overrides})


def text(*lines: OptionRule, profile: str = "oltp") -> str:
    return render_template("templates", "modprobe.conf.j2", profile=profile, lines=lines)


def as_kmod_reads(content: str) -> list[str]:
    """Return the lines that count: a backslash joins one with the next (modprobe.d(5))."""
    joined = re.sub(r"\\\n", "", content).split("\n")
    return [
        joined_line
        for joined_line in joined
        if joined_line.strip() and not joined_line.lstrip().startswith("#")
    ]


def test_option_follows_reason() -> None:
    content = text(line(), line(module="lpfc", option="lpfc_use_msi", value=2, because="MSI-X"))
    assert "# all there are (D4-3; rule mpt3sas-commands)\noptions mpt3sas max_q" in content
    assert as_kmod_reads(content) == [
        "options mpt3sas max_queue_depth=-1",
        "options lpfc lpfc_use_msi=2",
    ]
    assert "oltp" in content.splitlines()[0]


@given(why=HOSTILE, source=HOSTILE, rule=HOSTILE, profile=HOSTILE)
def test_reason_stays_in_comment(why: str, source: str, rule: str, profile: str) -> None:
    plain = text(line(), line(module="lpfc"))
    hostile = text(
        line(because=why, source=source, name=rule),
        line(module="lpfc", because=why),
        profile=profile,
    )
    assert as_kmod_reads(hostile) == as_kmod_reads(plain)
    assert len(hostile.splitlines()) == len(plain.splitlines())
    for reason in (why, source, rule, profile):
        assert comment(reason) in hostile


@given(HOSTILE)
def test_comment_is_one_line(reason: str) -> None:
    assert len(f"{comment(reason)}.".splitlines()) == 1
    assert not comment(reason).endswith("\\")


@given(module=HOSTILE, option=HOSTILE, value=HOSTILE)
def test_options_line_stays_intact(module: str, option: str, value: str) -> None:
    for hostile in (line(module=module), line(option=option), line(value=value)):
        try:
            content = text(hostile)
        except UnsafeNameError:
            continue
        assert as_kmod_reads(content) == [
            f"options {hostile.module} {hostile.option}={hostile.effect.value}"
        ]


@pytest.mark.parametrize("value", ["", "1 2", '"1"', "a'b", "1\n", "1\\", "$(x)", "\u0661"])
def test_split_value_is_refused(value: str) -> None:
    with pytest.raises(UnsafeNameError):
        text(line(value=value))


def test_options_survive_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "modprobe.d" / "hbatune.conf"
    assert system.read_module_options(path) == {}
    assert (
        system.write_module_options(path, text(line(), line(module="lpfc", value="a:1,b"))) is None
    )
    assert system.read_module_options(path) == {
        ("mpt3sas", "max_queue_depth"): "-1",
        ("lpfc", "max_queue_depth"): "a:1,b",
    }
    assert path.stat().st_mode & 0o777 == 0o644


def test_identical_file_is_untouched(tmp_path: Path) -> None:
    path = tmp_path / "hbatune.conf"
    system.write_module_options(path, text(line()))
    before = path.stat()
    system.write_module_options(path, text(line()))
    assert path.stat().st_ino == before.st_ino


def test_foreign_lines_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "hbatune.conf"
    path.write_bytes(b'options mpt3sas x="$(y)"\ninstall mpt3sas /bin/sh\n#options a b=1\n\xff\n')
    assert system.read_module_options(path) == {}


def test_removing_missing_file_succeeds(tmp_path: Path) -> None:
    path = tmp_path / "hbatune.conf"
    assert system.write_module_options(path, None) is None
    system.write_module_options(path, text(line()))
    assert system.write_module_options(path, None) is None
    assert not path.exists()


def test_unmakeable_folder_returns_errno(tmp_path: Path) -> None:
    (tmp_path / "modprobe.d").write_text("")
    assert system.write_module_options(tmp_path / "modprobe.d" / "hbatune.conf", "") == 17
