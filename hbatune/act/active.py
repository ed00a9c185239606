"""Which profile is the active one: the `profile` key of the site's configuration."""

import os
from contextlib import suppress
from pathlib import Path

from hbatune import loader
from hbatune.act import files
from hbatune.errors import HbatuneError
from hbatune.loader import UnusableFileError
from hbatune.policy.config import with_profile
from hbatune.policy.files import LARGEST, ROOT, follow


class ActiveProfileError(HbatuneError):
    """The configuration cannot be written."""


def require_writable(path: Path) -> None:
    """Raise ActiveProfileError where the configuration cannot be written, and change nothing."""
    path = _followed(path, ROOT)
    # The nearest folder that exists: those below it are made with the file.
    folder = next(each for each in path.parents if each.is_dir())
    if not os.access(folder, os.W_OK):
        raise ActiveProfileError(
            f"{path} cannot be written: {folder} takes no files; nothing was changed",
            hint="make it writable, or leave the file alone with `--once`",
        )


def activate(path: Path, profile: str | None, *, root: Path = ROOT) -> None:
    """Make the profile the active one, or none; everything else in the file stays as it is.

    A link stays a link: the file at its end is changed, below ``root``, and keeps its mode and
    owner. Raises ActiveProfileError where the file cannot be written or is not valid TOML.
    """
    path = _followed(path, root)
    try:
        before = _text(path) if path.exists() else ""
        after = with_profile(before, profile)
        if after != before:
            files.change(path, after.encode(), mode=0o644, folder_mode=0o755)
    except OSError as error:
        raise ActiveProfileError(
            f"{path} cannot be written: {error.strerror}",
            hint="the settings themselves are done; `--once` leaves this file alone",
        ) from error
    except UnusableFileError as error:
        raise ActiveProfileError(f"{path} cannot be read: {error}") from error
    except ValueError as error:  # from tomlkit, or from bytes that are not UTF-8
        raise ActiveProfileError(f"{path} is no TOML: {error}") from error


def _text(path: Path) -> str:
    return loader.read_bytes(path, LARGEST).decode()


def _followed(path: Path, root: Path) -> Path:
    """Return the file at the end of the path's links, resolved as under ``root`` as /."""
    try:
        return follow(Path("/") / path.relative_to(root), root).end
    except OSError as error:
        raise ActiveProfileError(f"{path} cannot be followed: {error.strerror}") from error


def forget(path: Path, *, root: Path = ROOT) -> None:
    """Make no profile the active one, and remove the configuration file if nothing is left in it.

    The folder is removed as well where it is empty. A link is an administrator's and stays, as does
    the file that it leads to. Raises ActiveProfileError as ``activate`` does.
    """
    try:
        if not _followed(path, root).exists():
            return
        activate(path, None, root=root)
        if not path.is_symlink() and not _text(path).strip():
            files.remove(path)
    except OSError as error:
        raise ActiveProfileError(f"{path} cannot be removed: {error.strerror}") from error
    except UnusableFileError as error:
        raise ActiveProfileError(f"{path} cannot be read: {error}") from error
    with suppress(OSError):  # not empty: it holds an administrator's files
        path.parent.rmdir()
