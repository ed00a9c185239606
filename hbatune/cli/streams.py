"""The standard streams of a command: always open, and writes to them never fail.

A command may be changing the machine when its terminal closes, its pipe breaks or its disk fills
up. The streams therefore keep the first failure of a write and drop all further output. The exit
code reports the failure at the end (``finish_output``).
"""

import codecs
import io
import os
import sys
from contextlib import suppress

from hbatune import TYPE_CHECKING
from hbatune.errors import ExitCode

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_WITH_ANSWER = (ExitCode.DONE, ExitCode.FOUND, ExitCode.NO_DAEMON)
"""Exit codes of commands that print a result to standard output."""

_PLAIN = "hbatune.plain"
"""The name of the error handler of the encodings of standard output and standard error."""

_REPLACEMENTS = {
    "…": "...",
    "→": "->",
    "µ": "u",
    "λ": "lambda",
    "°": "",
    "—": "-",
    "─": "-",
    "━": "-",
    "│": "|",
    "≤": "<=",
    "≥": ">=",
}
"""Replacements for characters in hbatune's texts that a terminal does not have."""


class _StandardStream(io.FileIO):
    """A standard stream that accepts everything; ``failure`` is the first failure of a write."""

    failure: OSError | None = None

    def write(self, data: "ReadableBuffer", /) -> int:
        """Write as much as the stream accepts, or drop the data after a failed write."""
        while self.failure is None:
            try:
                return os.write(self.fileno(), data)
            except BlockingIOError:
                from select import select  # rare: another process has made the stream non-blocking

                select([], [self], [])
            except OSError as error:
                self.failure = error
        return memoryview(data).nbytes


def open_standard_streams() -> None:
    """Open descriptors 0, 1 and 2 on /dev/null if the caller has closed them; guard 1 and 2.

    Call it before any file is opened. Otherwise a file, pipe or socket would get the free number,
    and messages or the output of a child process would be written into it.
    """
    closed = [descriptor for descriptor in (0, 1, 2) if not _is_open(descriptor)]
    for _ in closed:  # open(2) takes the lowest free number
        # Child processes need the three descriptors too, and Python opens files not inheritable.
        os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if 0 in closed:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115  (open as long as the process runs)
    codecs.register_error(_PLAIN, _replace_unencodable)
    # A stream with which a caller replaced the interpreter's is not changed.
    if 1 in closed or sys.stdout is sys.__stdout__:
        sys.stdout = _open_guarded(1, None if 1 in closed else sys.stdout)
    if 2 in closed or sys.stderr is sys.__stderr__:
        sys.stderr = _open_guarded(2, None if 2 in closed else sys.stderr)


def finish_output(code: int) -> int:
    """Return a command's exit code, changed if its output failed, unless it reports an error."""
    failure = flush_output()
    if failure is None or code not in _WITH_ANSWER:
        return code
    # The reader has exited (`hbatune diff | head`), which is not an error to print.
    if isinstance(failure, BrokenPipeError):
        return ExitCode.READER_GONE
    with suppress(OSError):  # standard error may be a foreign stream
        print(f"hbatune: the output cannot be written: {failure.strerror}", file=sys.stderr)
    return ExitCode.OUTPUT_FAILED


def flush_output() -> OSError | None:
    """Flush standard output, and return the first failure of a write to it, or None."""
    try:
        sys.stdout.flush()
    except OSError as error:
        return error
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw.failure if isinstance(raw, _StandardStream) else None


def _open_guarded(descriptor: int, before: object) -> io.TextIOWrapper:
    """Return a stream on the descriptor, similar to ``before``, whose writes never fail."""
    encoding, lines = "utf-8", descriptor == 2
    if isinstance(before, io.TextIOWrapper):
        # With PYTHONUNBUFFERED, a stream has write_through instead of line_buffering.
        encoding, lines = before.encoding, before.line_buffering or before.write_through
    buffer = io.BufferedWriter(_StandardStream(descriptor, "w", closefd=False))
    return io.TextIOWrapper(buffer, encoding=encoding, errors=_PLAIN, line_buffering=lines)


def _replace_unencodable(error: UnicodeError) -> tuple[str, int]:
    """Replace the characters that an encoding does not have (codecs.register_error)."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = ""
    for char in error.object[error.start : error.end]:
        text += _REPLACEMENTS.get(char) or char.encode("ascii", "backslashreplace").decode()
    return text, error.end


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
