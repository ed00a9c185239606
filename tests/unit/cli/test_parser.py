"""What a person is told who asks for help, or mistypes: groups, examples, plain sentences."""

import argparse
import re
import shlex
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest

import hbatune
from hbatune.cli import COMMANDS, main
from hbatune.cli.parser import (
    find_subparsers,
    format_help_page,
    load_help,
    make_full_parser,
)
from hbatune.errors import ExitCode, HbatuneError, UsageError
from hbatune.policy.library import Library, load_profile
from hbatune.probe.workloads import find_workload
from hbatune.settings.table import SETTINGS
from hbatune.shipped import find_message, find_shipped

CHECKOUT = Path(__file__).resolve().parents[3]
PARSERS = find_subparsers(make_full_parser())


def test_main_help_groups_commands() -> None:
    text = format_help_page(None)
    parts = [text.index(f"\n{title}:\n") for title in load_help()["main"]["groups"].values()]
    assert parts == sorted(parts)
    look, change, measure = (text[start : text.index("\n\n", start)] for start in parts)
    assert "\n  diff " in look
    assert "\n  apply " in change
    assert "\n  probe " in measure
    for command in COMMANDS:
        assert (look + change + measure).count(f"\n  {command} ") == 1


def examples() -> list[tuple[str, str]]:
    command_examples = [
        (name, line) for name in COMMANDS for line, _ in load_help()[name]["examples"]
    ]
    return command_examples + [("", line) for line, _ in load_help()["main"]["examples"]]


@pytest.mark.parametrize(("command", "line"), examples())
def test_help_examples_parse(command: str, line: str) -> None:
    words = shlex.split(line.removeprefix("sudo "))
    if words[0] == "systemctl":
        assert (CHECKOUT / "systemd" / f"{words[2]}.service.j2").exists() or words[2] == "hbatune"
        return
    assert words[0] == "hbatune"
    assert command in ("", words[1])
    parsed = make_full_parser().parse_args(words[1:])
    if (profile := getattr(parsed, "profile", None)) is not None:
        load_profile(profile, Library(find_shipped("rules"), site=Path("/nonexistent")))
    if (setting := getattr(parsed, "setting", None)) is not None:
        assert setting in SETTINGS
    described = getattr(parsed, "block", None) is not None
    if (workload := getattr(parsed, "workload", None)) is not None and not described:
        find_workload(workload, Library(find_shipped("rules")))


@pytest.mark.parametrize("command", COMMANDS)
def test_command_help_fits_80_columns(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = format_help_page(command)
    assert "\nexamples:\n  " in text
    examples = load_help()[command]["examples"]
    assert 2 <= len(examples) <= 4
    assert all(line in text for line, _ in examples)
    assert max(map(len, [*text.splitlines(), *format_help_page(None).splitlines()])) <= 80


@pytest.mark.parametrize("command", [*COMMANDS, None])
def test_help_fits_60_columns(command: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    lines = format_help_page(command).splitlines()
    assert max(map(len, lines)) <= 60
    for example, description in load_help()[command or "main"]["examples"]:
        assert any(line.startswith(f"  {example}") for line in lines)
        assert description in " ".join(" ".join(lines).split())


@pytest.mark.parametrize("command", COMMANDS)
def test_help_command_equals_option(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    output = capsys.readouterr().out
    assert main(["help", command]) == 0
    assert capsys.readouterr().out == output


def test_bare_help_equals_main(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help"]) == 0
    assert capsys.readouterr().out == format_help_page(None)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["lst"], "there is no command 'lst'\n         did you mean \"list\"?"),
        (["help", "lst"], "there is no command 'lst'\n         did you mean \"list\"?"),
        (["xyzzy"], "there is no command 'xyzzy'\n         `hbatune --help` shows all commands"),
        (
            ["diff", "--proflie", "oltp"],
            "`hbatune diff` has no option '--proflie'\n         did you mean \"--profile\"?",
        ),
        (["diff", "--jsno=1"], "`hbatune diff` has no option '--jsno'\n         did you mean"),
        (["status", "sda"], "`hbatune status` does not take 'sda'"),
        (["explain"], "TARGET is missing"),
        ([], "COMMAND is missing"),
        (["diff", "--profile"], "--profile needs a value"),
        (["diff", "--profile", "oltpp"], 'did you mean "oltp"?'),
        (["explain", "sda", "nr_request", "--profile", "oltp"], 'did you mean "nr_requests"?'),
        (["profiles", "latencyy"], 'did you mean "latency"?'),
        (["probe", "qd2", "sda"], 'did you mean "qd1"?'),
        (
            ["watch", "--interval", "x"],
            "--interval takes a number of seconds, at least 0.1, and not 'x'",
        ),
        (["watch", "--interval", "nan"], "a number of seconds, at least 0.1, and not 'nan'"),
        (["watch", "--count", "0"], "--count takes a whole number, at least 1, and not '0'"),
        (
            ["probe", "qd1", "sda", "--runtime", "1s"],
            "--runtime takes a number of seconds and not '1s'",
        ),
    ],
    ids=" ".join,
)
def test_usage_error_explains_mistake(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    caught = capsys.readouterr()
    assert message in caught.err
    assert caught.out == ""


def typed() -> list[tuple[str, str]]:
    """Return the command and the option of each argument that is parsed to more than a text."""
    return [
        (command, action.option_strings[0])
        for command, parser in PARSERS.items()
        for action in parser._actions
        if action.type not in (None, Path)
    ]


@pytest.mark.parametrize(("command", "option"), typed())
@pytest.mark.parametrize("value", ["x", "", "inf", "1e999", "-1x", "½"])
def test_invalid_value_states_expectation(command: str, option: str, value: str) -> None:
    with pytest.raises(UsageError) as raised:
        PARSERS[command].parse_args([f"{option}={value}"])
    assert re.match(rf"{option} takes .* and not {re.escape(repr(value))}", raised.value.message)


@pytest.mark.parametrize("action", [a for p in PARSERS.values() for a in p._actions])
def test_every_argument_has_help(action: argparse.Action) -> None:
    assert action.help


def test_exit_codes_appear_in_table() -> None:
    for module in walk_packages(hbatune.__path__, "hbatune."):
        if "_shipped" not in module.name:
            import_module(module.name)
    kinds = [HbatuneError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    assert {kind.exit_code for kind in kinds} <= set(ExitCode)
    assert ExitCode.NO_DAEMON in set(ExitCode)
    text = format_help_page(None)
    for code in ExitCode:
        assert re.search(
            rf"^ +{code.value}  {re.escape(find_message(code)[:30])}", text, re.MULTILINE
        )
