"""The record of the files that `hbatune install` placed, so that only those are removed again.

A file counts as hbatune's while it is as hbatune wrote it. The manifest is durable before the
first file is, and has the old and the new sum of each until all are in place.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hbatune import loader
from hbatune.act import files
from hbatune.errors import HbatuneError
from hbatune.loader import UnusableFileError

SCHEMA = "hbatune.installed/1"
_OTHER = "other"
_LARGEST = 1 << 20
"""Bytes of a placed file at most; the compiled rules have some ten thousand."""


class PlacedFile(Struct, frozen=True):
    """A file by its path below the root, with the SHA-256 of the content that hbatune wrote.

    There may be several sums while it is being replaced. For a symbolic link it is that of its
    target.
    """

    path: str
    sums: tuple[str, ...]


class Manifest(Struct, frozen=True):
    """The placed files, and the folders that were made for them, the outermost first."""

    placed: tuple[PlacedFile, ...] = ()
    folders: tuple[str, ...] = ()
    schema: str = SCHEMA

    def of(self, path: Path) -> PlacedFile | None:
        """Return the entry of the file placed at this path, None if there is none."""
        return next((each for each in self.placed if each.path == str(path)), None)

    def having(self, placed: Iterable[PlacedFile], folders: Iterable[str] = ()) -> "Manifest":
        """Return the manifest with these files added; a file that it has gets further sums."""
        known = {each.path: each.sums for each in self.placed}
        for each in placed:
            known[each.path] = tuple(dict.fromkeys((*known.get(each.path, ()), *each.sums)))
        return replace(
            self,
            placed=tuple(PlacedFile(path, sums) for path, sums in known.items()),
            folders=tuple(dict.fromkeys((*self.folders, *folders))),
        )

    def settled(self, placed: Iterable[PlacedFile]) -> "Manifest":
        """Return the manifest in which these files have only the given sums."""
        sums = {each.path: each for each in placed}
        return replace(self, placed=tuple(sums.get(each.path, each) for each in self.placed))

    def without(self, paths: Iterable[str]) -> "Manifest":
        """Return the manifest without these paths."""
        gone = set(paths)
        return replace(self, placed=tuple(e for e in self.placed if e.path not in gone))


class ManifestError(HbatuneError):
    """The manifest cannot be read."""


def load(path: Path) -> Manifest | None:
    """Return the manifest, None if nothing is installed; raise ``ManifestError``.

    A manifest that cannot be read is not the same as none: every file would look foreign.
    """
    try:
        found = loader.load(path, Manifest, loader.OWN)
    except FileNotFoundError:
        return None
    except (OSError, UnusableFileError) as error:
        raise ManifestError(
            f"{path} cannot be read: {error}",
            hint="it says which files `hbatune install` has placed",
        ) from error
    if found.schema != SCHEMA:
        raise ManifestError(f"{path} is of schema {found.schema}, not {SCHEMA}")
    return found


def save(path: Path, manifest: Manifest) -> None:
    """Write the manifest durably; OSError if the disk does not take it."""
    files.replace(path, msgspec.json.encode(manifest))


def sum_of(path: Path) -> str | None:
    """Return the sum of the file at ``path``, None if there is none.

    For what hbatune never places (a folder, a device, a huge file) it is a word that is no sum, so
    that it is never taken for hbatune's. PermissionError for a file that may not be read.
    """
    # Before exists() and read_bytes(), which both follow a link.
    if path.is_symlink():
        return hashed(str(path.readlink()).encode())
    if not path.exists():
        return None
    try:
        return hashed(loader.read_bytes(path, _LARGEST))
    except FileNotFoundError:  # removed meanwhile
        return None
    except UnusableFileError:
        return _OTHER


def hashed(data: bytes) -> str:
    """Return the SHA-256 of the data."""
    return hashlib.sha256(data).hexdigest()
