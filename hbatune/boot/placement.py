"""Places files below a root, and removes those that are unchanged since.

It never replaces or removes a file that is not as hbatune wrote it. The manifest, the record of the
files placed, is durable before the first file is, and has the old and the new sum of each until all
are in place.
"""

import errno
import os
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
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
"""Reasons why a folder is not hbatune's to remove: rmdir(2)."""
_LARGEST = 1 << 20
"""Bytes of a placed file at most; the compiled rules have some ten thousand."""

ROOT = Path("/")


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


def load_manifest(path: Path) -> Manifest | None:
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


def save_manifest(path: Path, manifest: Manifest) -> None:
    """Write the manifest durably; OSError if the disk does not take it."""
    before = b""
    with suppress(OSError, UnusableFileError):
        before = loader.read(path, loader.OWN)
    # What a newer version has put into it stays in it.
    files.replace(path, loader.encode_keeping(manifest, before))


def sum_of(path: Path) -> str | None:
    """Return the sum of the file at ``path``, None if there is none.

    For what hbatune never places (a folder, a device, a huge file) it is a word that is no sum, so
    that it is never taken for hbatune's. InstallError for a file that cannot be read.
    """
    try:
        # Before exists() and read_bytes(), which both follow a link.
        if path.is_symlink():
            return hashed(str(path.readlink()).encode())
        if not path.exists():
            return None
        return hashed(loader.read_bytes(path, _LARGEST))
    except FileNotFoundError:  # removed meanwhile
        return None
    except UnusableFileError:
        return _OTHER
    except OSError as error:
        raise InstallError(f"{path} cannot be read: {error.strerror}") from error


def hashed(data: bytes) -> str:
    """Return the SHA-256 of the data."""
    import hashlib  # OpenSSL comes with it, and a daemon that shares this module needs none

    return hashlib.sha256(data).hexdigest()


class Piece(Struct, frozen=True):
    """A file to place: its path on the machine that it is for, and its text.

    For a symbolic ``link`` the text is its target.
    """

    path: Path
    text: str
    link: bool = False

    @property
    def placed(self) -> PlacedFile:
        """Its entry in the manifest."""
        return PlacedFile(str(self.path), (hashed(self.text.encode()),))


class InstallError(HbatuneError):
    """A file cannot be placed or removed; the steps before it are undone."""


class ForeignError(InstallError):
    """Files stand in the way that are not as hbatune wrote them."""

    def __init__(self, paths: Sequence[Path]) -> None:
        names = ", ".join(map(str, paths))
        super().__init__(
            f"not as hbatune wrote it, and left as it is: {names}",
            hint="move it aside, and have hbatune write its own",
        )
        self.paths = tuple(paths)


def below(root: Path, path: Path) -> Path:
    """Return the place of a path of the machine below the root.

    InstallError if links of an image lead out of it: they must not change the machine that
    builds the image.
    """
    found = root / path.relative_to("/")
    folder = found.parent if found != root else root
    if not folder.resolve().is_relative_to(root.resolve()):
        raise InstallError(f"{folder} leads out of {root}, and is left alone")
    return found


def installed(root: Path, where: Path) -> Manifest | None:
    """Return the manifest of a root, None if nothing is installed; ``where`` is its path."""
    return load_manifest(below(root, where))


def differing(root: Path, pieces: Iterable[Piece]) -> list[Piece]:
    """Return the pieces that are missing, or in place with another text."""
    return [piece for piece in pieces if sum_of(below(root, piece.path)) not in piece.placed.sums]


def place(root: Path, where: Path, pieces: Sequence[Piece]) -> list[Path]:
    """Put the pieces in place, durably, and return the paths that have changed.

    Raises ForeignError before any change if a file stands there that is not hbatune's, and
    InstallError if one cannot be written; then all is as it was.
    """
    known = installed(root, where)
    before = known or Manifest()
    new = differing(root, pieces)
    if foreign := [each.path for each in new if _foreign(root, before, each.path)]:
        raise ForeignError(foreign)
    folders = _missing_folders(root, (where, *(each.path for each in new)))
    begun = before.having((piece.placed for piece in pieces), folders)
    # Before the first file: killed at any instant, `uninstall` knows every file as hbatune's.
    try:
        save_manifest(below(root, where), begun)
    except OSError as error:
        raise _failure(below(root, where), error) from error
    done: list[tuple[Piece, bytes | None]] = []
    for each in new:
        try:
            # Noted before the write, so that one that fails half-way is undone as well.
            done.append((each, content_of(below(root, each.path))))
            _put(below(root, each.path), each)
        except OSError as error:
            _undo(root, done, begun)
            _save_or_drop(below(root, where), known)
            raise _failure(below(root, each.path), error) from error
    # If this fails, the manifest still has the sums of both the new files and the old ones.
    _save_or_drop(below(root, where), begun.settled(piece.placed for piece in pieces))
    return [each.path for each in new]


class RemovedFiles(Struct, frozen=True):
    """The removed paths, those left because they have changed, and the folders made for them."""

    gone: tuple[Path, ...] = ()
    left: tuple[Path, ...] = ()
    folders: tuple[str, ...] = ()


def take_away(root: Path, where: Path, *, only: Collection[Path] | None = None) -> RemovedFiles:
    """Remove the placed files, or ``only`` those at these paths; the manifest keeps the others.

    The folders stay, for ``sweep``. InstallError if a file cannot be removed.
    """
    known = installed(root, where)
    if known is None:
        return RemovedFiles()
    gone, left = [], []
    for each in known.placed:
        path = Path(each.path)
        if only is not None and path not in only:
            continue
        now = sum_of(below(root, path))
        if now is not None and now not in each.sums:
            left.append(path)
            continue
        try:
            files.remove(below(root, path))
        except OSError as error:
            raise InstallError(f"{path} cannot be removed: {error.strerror}") from error
        gone.append(path)
    # The manifest comes last: killed before, it names files that are gone, which does no harm;
    # the other way round files would be left that are no longer known as hbatune's.
    rest = known.without(map(str, gone))
    if gone:
        _save_or_drop(below(root, where), rest if left or only is not None else None)
    return RemovedFiles(tuple(gone), tuple(left), known.folders)


def sweep(root: Path, folders: Sequence[str]) -> None:
    """Remove the folders that are empty now, the innermost first. InstallError if that fails."""
    for folder in reversed(folders):
        try:
            below(root, Path(folder)).rmdir()
        except OSError as error:
            if error.errno not in _STAYS:
                raise InstallError(f"{folder} cannot be removed: {error.strerror}") from error


def changed(root: Path, where: Path, path: Path) -> bool:
    """Whether the file placed at this path has changed since."""
    known = installed(root, where)
    found = known.of(path) if known else None
    now = sum_of(below(root, path))
    return found is not None and now is not None and now not in found.sums


def record(root: Path, where: Path, path: Path) -> None:
    """Add a file that another part of hbatune wrote to the manifest, or drop it if it is gone.

    If nothing is installed there is no manifest, and nothing happens. InstallError if the manifest
    cannot be written.
    """
    known = installed(root, where)
    if known is None:
        return
    now = sum_of(below(root, path))
    rest = known.without([str(path)])
    if now is not None:
        rest = rest.having([PlacedFile(str(path), (now,))])
    try:
        if rest != known:
            save_manifest(below(root, where), rest)
    except OSError as error:
        raise InstallError(f"{where} cannot be written: {error.strerror}") from error


def _foreign(root: Path, known: Manifest, path: Path) -> bool:
    now = sum_of(below(root, path))
    found = known.of(path)
    return now is not None and (found is None or now not in found.sums)


def _missing_folders(root: Path, paths: Iterable[Path]) -> list[str]:
    missing: dict[str, None] = {}
    for path in paths:
        above = [folder for folder in path.parents if not below(root, folder).is_dir()]
        missing.update(dict.fromkeys(map(str, reversed(above))))
    return list(missing)


def _put(path: Path, piece: Piece) -> None:
    if not piece.link:
        files.replace(path, piece.text.encode(), mode=0o644, folder_mode=0o755)
        return
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    # symlink(2) replaces nothing. Between the two calls the link is missing, for an instant.
    path.unlink(missing_ok=True)
    os.symlink(piece.text, path)
    files.sync_folder(path.parent)


def content_of(path: Path) -> bytes | None:
    """Return the present content, None if there is no regular file, or a huge one.

    A link has none: ``_undo`` removes the new one, and does not restore the old.
    """
    if not path.is_symlink():
        with suppress(FileNotFoundError, UnusableFileError):
            return loader.read_bytes(path, _LARGEST)
    return None


def _undo(root: Path, done: Iterable[tuple[Piece, bytes | None]], begun: Manifest) -> None:
    for piece, content in done:
        with suppress(OSError):  # the first error is the one to report; the rest is still undone
            if content is None:
                below(root, piece.path).unlink(missing_ok=True)
            else:
                files.replace(below(root, piece.path), content, mode=0o644)
    with suppress(InstallError):
        sweep(root, begun.folders)


def _save_or_drop(path: Path, known: Manifest | None) -> None:
    # Not fatal: a manifest with sums too many still claims only files with hbatune's content.
    with suppress(OSError):
        if known is None:
            files.remove(path)
        else:
            save_manifest(path, known)


def _failure(path: Path, error: OSError) -> InstallError:
    return InstallError(f"{path} cannot be written: {error.strerror}; nothing was placed")
