"""Which profile is the active one: the `profile` key of the site's configuration."""

from pathlib import Path

from hbatune.act import files
from hbatune.errors import HbatuneError
from hbatune.policy.config import with_profile


class ActiveProfileError(HbatuneError):
    """The configuration cannot be written."""


def activate(path: Path, profile: str | None) -> None:
    """Make the profile the active one, or none; all else in the file stays as it is.

    ActiveProfileError where the file cannot be written.
    """
    try:
        before = path.read_text() if path.exists() else ""
        after = with_profile(before, profile)
        if after != before:
            files.replace(path, after.encode(), mode=0o644, folder_mode=0o755)
    except OSError as error:
        raise ActiveProfileError(
            f"{path} cannot be written: {error.strerror}",
            hint="the settings themselves are done; `--once` leaves this file alone",
        ) from error
