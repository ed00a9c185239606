"""The standard streams of a command: always open, and never in the way of what the command does.

A command may be changing the machine as its terminal goes, its pipe breaks or its disk fills up.
So no write to standard output or standard error fails: the first failure is kept, what follows is
dropped, and the exit code tells it at the end (``with_output``).
"""

import codecs
import io
import os
import sys
from contextlib import suppress

from hbatune.errors import ExitCode

# As typing has it, which takes a third of an interpreter's start to be imported.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_WITH_ANSWER = (ExitCode.DONE, ExitCode.FOUND, ExitCode.NO_DAEMON)
"""Exit codes that come with an answer on standard output."""

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
"""Characters of hbatune's own texts, and what stands for them where a terminal has none."""


class _StandardStream(io.FileIO):
    """A standard stream that accepts everything; ``failure`` is the first failure of a write."""

    failure: OSError | None = None

    def write(self, data: "ReadableBuffer", /) -> int:
        """Write as much as the stream takes, or drop all of it once a write has failed."""
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
    """Open descriptors 0, 1 and 2 on /dev/null where the caller has closed them; guard 1 and 2.

    To be called before any file is opened: a file, pipe or socket would take the free number, and
    messages, or the output of a child process, would be written into it.
    """
    closed = [descriptor for descriptor in (0, 1, 2) if not _is_open(descriptor)]
    for _ in closed:  # open(2) takes the lowest free number
        # Child processes need the three numbers as well; Python opens files not inheritable.
        os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if 0 in closed:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115  (open as long as the process runs)
    codecs.register_error(_PLAIN, _replace_unencodable)
    # A stream that a caller has put in the place of the interpreter's own is left alone.
    if 1 in closed or sys.stdout is sys.__stdout__:
        sys.stdout = _open_guarded(1, None if 1 in closed else sys.stdout)
    if 2 in closed or sys.stderr is sys.__stderr__:
        sys.stderr = _open_guarded(2, None if 2 in closed else sys.stderr)


def with_output(code: int) -> int:
    """Return a command's exit code, with the fate of its output in it; that of an error stays."""
    failure = output_failure()
    if failure is None or code not in _WITH_ANSWER:
        return code
    # The reader has gone (`hbatune diff | head`): that is its right, not an error to show.
    if isinstance(failure, BrokenPipeError):
        return ExitCode.READER_GONE
    with suppress(OSError):  # where standard error is not hbatune's own stream
        print(f"hbatune: the output cannot be written: {failure.strerror}", file=sys.stderr)
    return ExitCode.OUTPUT_FAILED


def output_failure() -> OSError | None:
    """Flush standard output, and return the first failure of a write to it, None if all is out."""
    try:
        sys.stdout.flush()
    except OSError as error:
        return error
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw.failure if isinstance(raw, _StandardStream) else None


def _open_guarded(descriptor: int, before: object) -> io.TextIOWrapper:
    """Return a stream on the descriptor that is like ``before``, and whose writes never fail."""
    encoding, lines, direct = "utf-8", descriptor == 2, False
    if isinstance(before, io.TextIOWrapper):
        encoding, lines, direct = before.encoding, before.line_buffering, before.write_through
    raw = _StandardStream(descriptor, "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=encoding,
        errors=_PLAIN,
        line_buffering=lines,
        write_through=direct,
    )


def _replace_unencodable(error: UnicodeError) -> tuple[str, int]:
    """Replace the characters that an encoding does not have (codecs.register_error)."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    escape = "backslashreplace"
    return "".join(
        _REPLACEMENTS.get(char) or char.encode("ascii", escape).decode() for char in text
    ), error.end


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
