"""Tests of hbatune/cli/streams.py."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.unit.cli.shell_commands import HBATUNE, shell


@pytest.mark.parametrize("words", ["--version", "--help", "list --help", "profiles", "probe"])
def test_unwritable_output_exits_74(words: str) -> None:
    done = shell(f'"$@" {words} >/dev/full')
    assert done.returncode == 74
    assert done.stderr == "hbatune: the output cannot be written: No space left on device\n"


def test_error_keeps_exit_code() -> None:
    assert shell('"$@" profiles nosuch >/dev/full 2>&1').returncode == 2
    assert shell('"$@" profiles --nosuch >/dev/full 2>/dev/full').returncode == 2
    assert shell('"$@" profiles 2>/dev/full').returncode == 0


@pytest.mark.parametrize("words", ["profiles oltp", "profiles oltp --json", "--help", "--version"])
def test_closed_pipe_exits_141(words: str) -> None:
    done = shell(f'{{ "$@" {words}; echo $? >&2; }} | true')
    # The reader may have read all of it before it went, or nothing at all.
    assert done.stderr in ("141\n", "0\n")
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run([*HBATUNE, *words.split()], stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGPIPE, b"")


def test_closed_output_is_ignored() -> None:
    done = shell('"$@" profiles oltp >&-')
    assert (done.returncode, done.stderr) == (0, "")
    assert shell('"$@" profiles nosuch 2>&-').returncode == 2


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_messages_keep_their_order(unbuffered: str) -> None:
    code = (
        "import sys; from hbatune.cli.streams import open_standard_streams as open_streams\n"
        "open_streams(); print('first', file=sys.stderr); print('second', flush=True)"
    )
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    words, both = [sys.executable, "-c", code], subprocess.STDOUT
    done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, stderr=both, check=True)
    assert done.stdout.split() == [b"first", b"second"]


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "cp437"])
def test_terminal_output_is_transliterated(encoding: str) -> None:
    code = "from hbatune.cli import main; main(['--version']); print('a … b → 3 µs \\u202e')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        check=True,
    )
    last = done.stdout.decode(encoding).splitlines()[-1]
    micro = "u" if encoding == "ascii" else "µ"
    arrow = "->"
    assert last == f"a ... b {arrow} 3 {micro}s \\u202e"


def test_json_is_encoding_independent() -> None:
    code = (
        "import msgspec; from hbatune.cli import main; from hbatune.text.terminal import *\n"
        "main(['--version'])\n"
        "class Words(msgspec.Struct): words: str\n"
        "show_json(Words('a … b µ \\U0001f600'))"
    )
    decoded = set()
    for encoding in ("latin-1", "ascii", "utf-8"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONIOENCODING": encoding},
            capture_output=True,
            check=True,
        )
        decoded.add(json.loads(done.stdout.partition(b"\n")[2].decode(encoding))["words"])
    assert decoded == {"a … b µ \U0001f600"}
