"""-H runs the same command on another host, word for word, and hands its exit code through.

A fake ssh notes how it was called, and has a shell run the command as sshd does.
"""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from hbatune.cli import main
from hbatune.cli.parser import find_command_name
from hbatune.cli.remote import remove_host_option

MAIN = "import sys; from hbatune.cli import main; sys.exit(main(sys.argv[1:]))"

SSH = """#!/bin/sh
printf '%s\\n' "$1" "$2" "$3" > {folder}/called
shift 3
PATH={folder}/there exec /bin/sh -c "$*"
"""

HBATUNE = """#!/bin/sh
for word; do printf '%s\\0' "$word"; done
exit ${CODE:-0}
"""


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a fake ssh in PATH; hbatune is on its host."""
    for path, text in (
        ("here/ssh", SSH.format(folder=tmp_path)),
        ("there/hbatune", HBATUNE),
    ):
        (tmp_path / path).parent.mkdir()
        (tmp_path / path).write_text(text)
        (tmp_path / path).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "here"))
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        ["list"],
        ["explain", "sda", "nr_requests"],
        ["diff", "--profile", "my own", "--", "a'b", '$(touch "x")', "*", ""],
        ["list", "naïve;reboot", "back\\slash", "new\nline", "~", "&", "#"],
        ["--quiet", "apply", "--profile=oltp"],
    ],
    ids=str,
)
def test_words_reach_host_verbatim(
    words: list[str], hosts: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["-H", "admin@db1", *words]) == 0
    assert capfdbinary.readouterr().out.decode().split("\0") == [*words, ""]
    assert (hosts / "called").read_text().split() == ["-T", "--", "admin@db1"]


@pytest.mark.parametrize("code", [0, 1, 2, 3, 4, 70])
def test_remote_exit_code_is_returned(
    code: int, hosts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODE", str(code))
    assert main(["status", "--host=db1"]) == code


def test_terminal_is_passed_through(hosts: Path) -> None:
    ours, theirs = pty.openpty()
    words = [sys.executable, "-c", MAIN, "-H", "db1", "list"]
    done = subprocess.run(words, stdin=theirs, stdout=theirs, stderr=theirs, check=False)
    os.close(theirs)
    os.close(ours)
    assert done.returncode == 0
    assert (hosts / "called").read_text().split()[0] == "-t"


def test_missing_remote_hbatune_is_reported(
    hosts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (hosts / "there/hbatune").unlink()
    assert main(["-H", "db1", "list"]) == 127
    assert "there is no hbatune on db1" in capsys.readouterr().err


def test_lost_connection_is_reported(hosts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (hosts / "here/ssh").write_text("#!/bin/sh\nexit 255\n")
    assert main(["-H", "db1", "apply"]) == 255
    messages = capsys.readouterr().err
    assert "ssh lost the connection to db1, or did not reach it" in messages
    assert "`hbatune status -H db1`" in messages
    assert main(["-H", "db1", "list"]) == 255
    assert "status" not in capsys.readouterr().err, "a list changes nothing"


def test_missing_ssh_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["-H", "db1", "list"]) == 127
    assert "there is no ssh on this machine" in capsys.readouterr().err


@pytest.mark.parametrize("host", ["-oProxyCommand=reboot", "", "db1 db2", "db1\nreboot"])
def test_invalid_host_exits_2(host: str, hosts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"--host={host}", "list"]) == 2
    assert not (hosts / "called").exists()
    assert "is not a host" in capsys.readouterr().err


def test_usage_error_precedes_connection(hosts: Path) -> None:
    assert main(["-H", "db1", "diff", "--proflie", "oltp"]) == 2
    assert not (hosts / "called").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["-H", "db1", "diff", "--json"],
        ["-Hdb1", "diff", "--json"],
        ["diff", "-H", "db1", "--json"],
        ["diff", "--json", "--host", "db1"],
        ["diff", "--host=db1", "--json"],
        ["diff", "--ho", "db1", "--json"],
        ["--hos", "db1", "diff", "--json"],
        ["--hos=db1", "diff", "--json"],
        ["--host", "db0", "diff", "--json", "-Hdb1"],
    ],
    ids=" ".join,
)
def test_host_option_stays_local(words: list[str]) -> None:
    assert remove_host_option(words) == ["diff", "--json"]
    assert find_command_name(words) == "diff"


def test_double_dash_ends_options() -> None:
    assert remove_host_option(["diff", "--", "-H", "sda"]) == ["diff", "--", "-H", "sda"]
