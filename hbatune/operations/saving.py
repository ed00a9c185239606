"""A file that somebody named, written whole or not at all; what is in the way is said."""

from pathlib import Path

from hbatune.act import files
from hbatune.errors import UsageError


def save(path: Path, data: bytes, *, over: bool) -> None:
    """Write a new file, or ``over`` a regular one; UsageError where that cannot be."""
    try:
        files.save(path, data, over=over)
    except FileExistsError as error:
        hint = None if over else "name another file, or --force to replace a regular one"
        problem = "is not a regular file" if over else "exists already"
        raise UsageError(f"{str(path)!r} {problem}", hint=hint) from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"{str(path)!r} cannot be written: {reason}") from error
