"""Install files below a root, and remove the unchanged ones.

hbatune never replaces or removes content that it did not write. The manifest, the record of the
installed files, is durable before the first file. It has each file's old and new sum until the end.
"""

import errno
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import starmap
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from hbatune import loader
from hbatune.act import files
from hbatune.errors import HbatuneError
from hbatune.loader import UnusableFileError

SCHEMA = "hbatune.installed/1"
_OTHER = "other"
_STAYS = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.ENOTDIR, errno.EBUSY})
"""Errors of rmdir(2) after which a directory is not hbatune's to remove."""
_LARGEST = 1 << 20
"""Maximum bytes of an installed file; the compiled rules have some ten thousand."""

ROOT = Path("/")


class PlacedFile(Struct, frozen=True):
    """A path below the root, and the SHA-256 of its text or link; several in a replacement."""

    path: str
    sums: tuple[str, ...]


class Manifest(Struct, frozen=True):
    """The installed files, and the directories created for them, the outermost first."""

    placed: tuple[PlacedFile, ...] = ()
    folders: tuple[str, ...] = ()
    schema: str = SCHEMA

    def collect_sums(self) -> dict[str, tuple[str, ...]]:
        """Return the sums of all installed files, by path."""
        return {file.path: file.sums for file in self.placed}

    def with_sums(self, sums_by_path: Mapping[str, tuple[str, ...]]) -> "Manifest":
        """Return the manifest of these files instead."""
        return replace(self, placed=tuple(starmap(PlacedFile, sums_by_path.items())))


class ManifestError(HbatuneError):
    """The manifest cannot be read."""


def load_installed(root: Path, manifest_path: Path) -> Manifest | None:
    """Return the manifest of a root, or None. ManifestError: without it all files look foreign."""
    path = join_root(root, manifest_path)
    hint = "it says which files `hbatune install` has placed"
    bounds, error = loader.STATE_BOUNDS, ManifestError
    return loader.StateFile("", Manifest, SCHEMA, bounds, error, hint, sudo=False).load(path)


def save_manifest(path: Path, manifest: Manifest) -> None:
    """Write the manifest durably; OSError if the disk refuses it."""
    before = b""
    with suppress(OSError, UnusableFileError):
        before = loader.read(path, loader.STATE_BOUNDS)
    # Content that a newer version has written stays in it.
    files.replace(path, loader.encode_merged(manifest, before))


def hash_file(path: Path) -> str | None:
    """Return the sum of the file at ``path``, or None if there is no file.

    For an object that hbatune never installs (a directory, a device, a huge file) it is a word that
    matches no sum, so hbatune never claims it. InstallError for a file that cannot be read.
    """
    try:
        # Before exists() and read_bytes(), which both follow a link.
        if path.is_symlink():
            return hash_data(str(path.readlink()).encode())
        if not path.exists():
            return None
        return hash_data(loader.read_bytes(path, _LARGEST))
    except FileNotFoundError:  # just removed
        return None
    except UnusableFileError:
        return _OTHER
    except OSError as error:
        raise InstallError(f"{path} cannot be read: {error.strerror}") from error


def hash_data(data: bytes) -> str:
    """Return the SHA-256 of the data."""
    import hashlib  # loads OpenSSL, which a daemon that shares this module does not need

    return hashlib.sha256(data).hexdigest()


class Piece(Struct, frozen=True):
    """A file to install: its path on its machine, and its text, or the target of a ``link``."""

    path: Path
    text: str
    link: bool = False

    @property
    def sum(self) -> str:
        """The SHA-256 of its text."""
        return hash_data(self.text.encode())


class InstallError(HbatuneError):
    """A file cannot be installed or removed; the steps before it are undone."""


def join_root(root: Path, path: Path) -> Path:
    """Return a machine's path below the root; InstallError if an image's links lead out of it."""
    target = root / path.relative_to("/")
    folder = target.parent if target != root else root
    if not folder.resolve().is_relative_to(root.resolve()):
        raise InstallError(f"{folder} leads out of {root} and was skipped")
    return target


def find_differing(root: Path, pieces: Iterable[Piece]) -> list[Piece]:
    """Return the pieces that are missing, or installed with another text."""
    return [piece for piece in pieces if hash_file(join_root(root, piece.path)) != piece.sum]


def place_pieces(root: Path, manifest_path: Path, pieces: Sequence[Piece]) -> list[Path]:
    """Install the pieces durably, and return the paths that have changed.

    Raises InstallError before any change if a path has a file that is not hbatune's, and if a file
    cannot be written, after undoing all changes.
    """
    existing, record = load_installed(root, manifest_path), join_root(root, manifest_path)
    before = existing or Manifest()
    new, sums = find_differing(root, pieces), before.collect_sums()
    foreign = []
    for piece in new:
        if _is_edited(root, piece.path, sums.get(str(piece.path), ())):
            foreign.append(str(piece.path))
    if foreign:
        problem = f"edited after hbatune wrote it, so not replaced: {', '.join(foreign)}"
        raise InstallError(problem, hint="move it away, and hbatune writes its own")
    changed = [piece.path for piece in new]
    folders = dict.fromkeys(before.folders)
    for path in (manifest_path, *changed):
        for folder in reversed(path.parents):
            if not join_root(root, folder).is_dir():
                folders[str(folder)] = None
    new_sums = {str(piece.path): (piece.sum,) for piece in pieces}
    for name, new_sum in new_sums.items():
        sums[name] = tuple(dict.fromkeys((*sums.get(name, ()), *new_sum)))
    begun = replace(before.with_sums(sums), folders=tuple(folders))
    # Before the first file: if killed at any instant, `uninstall` identifies every file.
    try:
        save_manifest(record, begun)
    except OSError as error:
        raise _make_error(record, error) from error
    done: list[tuple[Path, bytes | None]] = []
    for piece in new:
        path = join_root(root, piece.path)
        try:
            # Noted before the write, so a partly failed one is undone as well.
            done.append((path, read_content(path)))
            _write_piece(path, piece)
        except OSError as error:
            for written, content in done:
                with suppress(OSError):  # only the first error is reported; others are still undone
                    if content is None:
                        written.unlink(missing_ok=True)
                    else:
                        files.replace(written, content, mode=0o644)
            with suppress(InstallError):
                remove_empty_folders(root, begun.folders)
            _save_or_drop(record, existing)
            raise _make_error(path, error) from error
    # If this fails, the manifest still has the sums of both the new files and the old ones.
    _save_or_drop(record, begun.with_sums(sums | new_sums))
    return changed


class RemovedFiles(Struct, frozen=True):
    """The removed paths (``gone``), the changed and retained ones (``left``), and directories."""

    gone: tuple[Path, ...] = ()
    left: tuple[Path, ...] = ()
    folders: tuple[str, ...] = ()


def remove_files(
    root: Path, manifest_path: Path, *, only: Collection[Path] | None = None
) -> RemovedFiles:
    """Remove the installed files, or ``only`` these, and not their directories. InstallError."""
    manifest = load_installed(root, manifest_path) or Manifest()
    removed, retained = [], []
    sums_by_path = manifest.collect_sums()
    for file in manifest.placed:
        path = Path(file.path)
        if only is not None and path not in only:
            continue
        if _is_edited(root, path, file.sums):
            retained.append(path)
            continue
        try:
            files.remove(join_root(root, path))
        except OSError as error:
            raise InstallError(f"{path} cannot be removed: {error.strerror}") from error
        removed.append(path)
        del sums_by_path[file.path]
    # The manifest comes last. If killed before, it names removed files, which is harmless. In the
    # other order, files would remain that hbatune no longer identifies as its own.
    if removed:
        remaining = manifest.with_sums(sums_by_path) if retained or only is not None else None
        _save_or_drop(join_root(root, manifest_path), remaining)
    return RemovedFiles(tuple(removed), tuple(retained), manifest.folders)


def remove_empty_folders(root: Path, folders: Sequence[str]) -> None:
    """Remove the directories that are empty, the innermost first. InstallError if that fails."""
    for folder in reversed(folders):
        try:
            join_root(root, Path(folder)).rmdir()
        except OSError as error:
            if error.errno not in _STAYS:
                raise InstallError(f"{folder} cannot be removed: {error.strerror}") from error


def is_changed(root: Path, manifest_path: Path, path: Path) -> bool:
    """Return whether the file installed at this path has changed since."""
    manifest = load_installed(root, manifest_path)
    sums = manifest.collect_sums().get(str(path)) if manifest else None
    return sums is not None and _is_edited(root, path, sums)


def _is_edited(root: Path, path: Path, sums: Collection[str]) -> bool:
    current_sum = hash_file(join_root(root, path))
    return current_sum is not None and current_sum not in sums


def record_file(root: Path, manifest_path: Path, path: Path) -> None:
    """Add another room's file to an existing manifest, or drop a missing one. InstallError."""
    manifest = load_installed(root, manifest_path)
    if manifest is None:
        return
    sums_by_path = manifest.collect_sums()
    sums_by_path.pop(str(path), None)
    current_sum = hash_file(join_root(root, path))
    if current_sum is not None:
        sums_by_path[str(path)] = (current_sum,)
    updated = manifest.with_sums(sums_by_path)
    try:
        if updated != manifest:
            save_manifest(join_root(root, manifest_path), updated)
    except OSError as error:
        raise InstallError(f"{manifest_path} cannot be written: {error.strerror}") from error


def _write_piece(path: Path, piece: Piece) -> None:
    if not piece.link:
        files.replace(path, piece.text.encode(), mode=0o644, folder_mode=0o755)
        return
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    # symlink(2) replaces nothing. Between the two calls the link is missing, for an instant.
    path.unlink(missing_ok=True)
    os.symlink(piece.text, path)
    files.sync_folder(path.parent)


def read_content(path: Path) -> bytes | None:
    """Return the content, or None for a link, for no regular file, or for a huge one."""
    if not path.is_symlink():
        with suppress(FileNotFoundError, UnusableFileError):
            return loader.read_bytes(path, _LARGEST)
    return None


def _save_or_drop(path: Path, manifest: Manifest | None) -> None:
    # Not fatal: a manifest with too many sums still claims only files with hbatune's content.
    with suppress(OSError):
        if manifest is None:
            files.remove(path)
        else:
            save_manifest(path, manifest)


def _make_error(path: Path, error: OSError) -> InstallError:
    return InstallError(f"{path} cannot be written: {error.strerror}; nothing was placed")
