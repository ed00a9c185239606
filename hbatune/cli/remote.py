"""Run a command on another host over ssh: the option ``--host`` of every command."""

import re
import shlex
import subprocess
import sys
from collections.abc import Sequence

from hbatune.cli import GROUPS
from hbatune.cli.arguments import is_option
from hbatune.errors import ExitCode, HbatuneError, UsageError

_OPTION = ("-H", "--host")
_HOST = re.compile(r"[^\s\x00-\x1f-][^\s\x00-\x1f]*")


class RemoteError(HbatuneError):
    """A command could not be run on another host; ``exit_code`` is the exit code of ssh."""

    def __init__(self, message: str, code: ExitCode, *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.exit_code = code


def run_remote_command(host: str, arguments: Sequence[str]) -> int:
    """Run the command line on the host and return its exit code there.

    It uses the streams of this process, and gets a terminal if all of them are terminals.
    UsageError for an invalid host; RemoteError without ssh, a connection, or hbatune on the host.
    """
    if not _HOST.fullmatch(host):
        raise UsageError(f"--host: {host!r} is not a host", hint="write USER@HOST, or HOST")
    terminal = all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
    # ssh joins the arguments after the host with spaces, and a shell there parses them.
    command = shlex.join(["hbatune", *remove_host_option(arguments)])
    try:
        code = subprocess.call(["ssh", "-t" if terminal else "-T", "--", host, command])
    except FileNotFoundError as error:
        problem = f"{host} cannot be reached: there is no ssh on this machine"
        raise RemoteError(problem, ExitCode.NOT_THERE, hint="install openssh-client") from error
    if code == ExitCode.NO_CONNECTION:
        problem = f"ssh lost the connection to {host}, or did not reach it"
        hint = f"see ssh's message above; `ssh {host}` must work"
        if set(GROUPS["change"]) & set(arguments):
            hint += f". To see the changes until then, run `hbatune status -H {host}`"
        raise RemoteError(problem, ExitCode.NO_CONNECTION, hint=hint)
    if code == ExitCode.NOT_THERE:
        problem = f"there is no hbatune on {host}, or not in the PATH of that user"
        hint = f"install it there; `ssh {host} hbatune --version` tries it"
        raise RemoteError(problem, ExitCode.NOT_THERE, hint=hint)
    return code if code >= 0 else 128 - code


def remove_host_option(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of a command line without the option --host, in all its forms."""
    remaining: list[str] = []
    words = iter(arguments)
    for argument in words:
        if argument == "--":
            return [*remaining, argument, *words]
        if is_option(argument, *_OPTION):
            next(words, None)
        elif not argument.startswith("-H") and not is_option(argument.partition("=")[0], *_OPTION):
            remaining.append(argument)
    return remaining
