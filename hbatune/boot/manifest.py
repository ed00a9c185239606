"""What `hbatune install` has placed, so that it can be taken away again, and nothing else is.

A file counts as hbatune's while it is as hbatune wrote it. The manifest is durable before the
first file is, and knows of each what it was and what it is to be until all are in place.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hbatune.act import files
from hbatune.errors import HbatuneError

SCHEMA = "hbatune.installed/1"
_FOLDER = "folder"


class PlacedFile(Struct, frozen=True):
    """A file by its path below the root, with the SHA-256 of what hbatune wrote there.

    There may be several while it is being replaced. For a symbolic link it is that of its target.
    """

    path: str
    sums: tuple[str, ...]


class Manifest(Struct, frozen=True):
    """What was placed, and the folders that were made for it, the outermost first."""

    placed: tuple[PlacedFile, ...] = ()
    folders: tuple[str, ...] = ()
    schema: str = SCHEMA

    def of(self, path: Path) -> PlacedFile | None:
        """Return what was placed at this path."""
        return next((each for each in self.placed if each.path == str(path)), None)

    def having(self, placed: Iterable[PlacedFile], folders: Iterable[str] = ()) -> "Manifest":
        """Return the manifest with these in it; what is there already gets further sums."""
        known = {each.path: each.sums for each in self.placed}
        for each in placed:
            known[each.path] = tuple(dict.fromkeys((*known.get(each.path, ()), *each.sums)))
        return replace(
            self,
            placed=tuple(PlacedFile(path, sums) for path, sums in known.items()),
            folders=tuple(dict.fromkeys((*self.folders, *folders))),
        )

    def settled(self, placed: Iterable[PlacedFile]) -> "Manifest":
        """Return the manifest in which these have only the sums that they have here."""
        sums = {each.path: each for each in placed}
        return replace(self, placed=tuple(sums.get(each.path, each) for each in self.placed))

    def without(self, paths: Iterable[str]) -> "Manifest":
        """Return the manifest without these paths."""
        gone = set(paths)
        return replace(self, placed=tuple(e for e in self.placed if e.path not in gone))


class ManifestError(HbatuneError):
    """The manifest cannot be read."""


def load(path: Path) -> Manifest | None:
    """Return the manifest, None where nothing is installed; ``ManifestError``."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ManifestError(
            f"{path} cannot be read: {error}",
            hint="it says which files `hbatune install` has placed",
        ) from error
    if found.schema != SCHEMA:
        raise ManifestError(f"{path} is of schema {found.schema}, not {SCHEMA}")
    return found


def save(path: Path, manifest: Manifest) -> None:
    """Make the manifest durable; OSError where the disk does not take it."""
    files.replace(path, msgspec.json.encode(manifest))


def sum_of(path: Path) -> str | None:
    """Return the sum of what is at ``path`` now, None where nothing is; a folder has none of ours.

    OSError for what cannot be read.
    """
    if path.is_symlink():
        return hashed(str(path.readlink()).encode())
    if path.is_dir():
        return _FOLDER
    try:
        return hashed(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None


def hashed(data: bytes) -> str:
    """Return the SHA-256 of the data."""
    return hashlib.sha256(data).hexdigest()
