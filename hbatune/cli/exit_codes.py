"""The exit codes of all commands, in one table: help, man page and docs/exit-codes.md show it."""

from enum import IntEnum


class ExitCode(IntEnum):
    """An exit code of hbatune, with its ``meaning`` in words."""

    meaning: str

    def __new__(cls, number: int, meaning: str) -> "ExitCode":
        """Make the code of this number."""
        made = int.__new__(cls, number)
        made._value_ = number
        made.meaning = meaning
        return made

    DONE = 0, "done; no drift, nothing found, all is well"
    FOUND = (
        1,
        "`diff` or `audit` found drift, `compare` a difference, `check` or `status` something; a "
        "load is too much for the host (`size`); or not everything could be done: a file not read, "
        "a setting was not set or not put back, a probe gave no figures, a regression was reverted "
        "or, as asked, kept",
    )
    USAGE = 2, "bad usage, bad configuration, or not permitted; nothing was written"
    LOCKED = 3, "another hbatune holds the lock, or is the daemon; a rollback is recorded anyway"
    NO_DAEMON = 4, "`status`: the daemon is not running"
    FAULT = 70, "a fault of hbatune itself, with a message that says how to report it"
    OUTPUT_FAILED = 74, "all was done, and the output could not be written"
    NOT_THERE = 127, "with `-H`: there is no ssh here, or no hbatune on that host"
    READER_GONE = (
        141,
        "all was done, and what read the output has ended, as in `hbatune list | head`",
    )
    NO_CONNECTION = 255, "with `-H`: ssh could not connect to the host"


def exit_code_lines() -> list[tuple[str, str]]:
    """Return each number with its meaning, in the order of the numbers."""
    return [(str(code.value), code.meaning) for code in sorted(ExitCode)]
