"""Puts files in place below a root, and takes away those that are still as they were put there."""

import os
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from hbatune.act import files
from hbatune.boot import manifest
from hbatune.boot.manifest import Manifest, PlacedFile, hashed, sum_of
from hbatune.errors import HbatuneError

ROOT = Path("/")


class Piece(Struct, frozen=True):
    """A file to place: its path on the machine that it is for, and its text.

    For a symbolic ``link`` the text is what it points to.
    """

    path: Path
    text: str
    link: bool = False

    @property
    def placed(self) -> PlacedFile:
        """What the manifest says of it."""
        return PlacedFile(str(self.path), (hashed(self.text.encode()),))


class InstallError(HbatuneError):
    """Something cannot be placed or taken away; what had been begun is undone."""


class ForeignError(InstallError):
    """Files are in the way that are not as hbatune wrote them."""

    def __init__(self, paths: Sequence[Path]) -> None:
        names = ", ".join(map(str, paths))
        super().__init__(
            f"not as hbatune wrote it, and left as it is: {names}",
            hint="move it aside, and have hbatune write its own",
        )
        self.paths = tuple(paths)


def below(root: Path, path: Path) -> Path:
    """Return where a path of the machine is below the root.

    InstallError where links of an image lead out of it: they must not change its builder.
    """
    found = root / path.relative_to("/")
    folder = found.parent if found != root else root
    if not folder.resolve().is_relative_to(root.resolve()):
        raise InstallError(f"{folder} leads out of {root}, and is left alone")
    return found


def installed(root: Path, where: Path) -> Manifest | None:
    """Return what is installed below the root; ``where`` is the manifest's path."""
    return manifest.load(below(root, where))


def differing(root: Path, pieces: Iterable[Piece]) -> list[Piece]:
    """Return the pieces that are not in place as they are."""
    return [each for each in pieces if sum_of(below(root, each.path)) not in each.placed.sums]


def place(root: Path, where: Path, pieces: Sequence[Piece]) -> list[Path]:
    """Put the pieces in place, durably, and return the paths that have changed.

    What stands there already and is not hbatune's stops it: ForeignError. InstallError where
    something cannot be written; then all is as it was.
    """
    known = installed(root, where)
    before = known or Manifest()
    new = differing(root, pieces)
    if foreign := [each.path for each in new if _foreign(root, before, each.path)]:
        raise ForeignError(foreign)
    folders = _missing_folders(root, (where, *(each.path for each in new)))
    begun = before.having((each.placed for each in pieces), folders)
    try:
        manifest.save(below(root, where), begun)
    except OSError as error:
        raise _failure(below(root, where), error) from error
    done: list[tuple[Piece, bytes | None]] = []
    for each in new:
        try:
            done.append((each, _content(below(root, each.path))))
            _put(below(root, each.path), each)
        except OSError as error:
            _undo(root, done, begun)
            _save_or_drop(below(root, where), known)
            raise _failure(below(root, each.path), error) from error
    # Where this fails the manifest knows what is there all the same, and what was there before.
    _save_or_drop(below(root, where), begun.settled(each.placed for each in pieces))
    return [each.path for each in new]


class Taken(Struct, frozen=True):
    """What is gone, what was left because it has changed since, and the folders made for it."""

    gone: tuple[Path, ...] = ()
    left: tuple[Path, ...] = ()
    folders: tuple[str, ...] = ()


def take_away(root: Path, where: Path, *, only: Collection[Path] | None = None) -> Taken:
    """Remove what was placed, or ``only`` these paths of it; the manifest keeps what was left.

    The folders stay, for ``sweep``. InstallError where something cannot be removed.
    """
    known = installed(root, where)
    if known is None:
        return Taken()
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
    rest = known.without(map(str, gone))
    if gone:
        _save_or_drop(below(root, where), rest if left or only is not None else None)
    return Taken(tuple(gone), tuple(left), known.folders)


def sweep(root: Path, folders: Sequence[str]) -> None:
    """Remove the folders that were made and are empty now, the innermost first."""
    for folder in reversed(folders):
        with suppress(OSError):  # another program has put something there, or it is gone
            below(root, Path(folder)).rmdir()


def changed(root: Path, where: Path, path: Path) -> bool:
    """Whether what was placed at this path is not any more as it was placed."""
    known = installed(root, where)
    found = known.of(path) if known else None
    now = sum_of(below(root, path))
    return found is not None and now is not None and now not in found.sums


def record(root: Path, where: Path, path: Path) -> None:
    """Take a file that was written by other means into the manifest, or out where it is gone.

    Where nothing is installed there is no manifest to take it into. InstallError where that cannot
    be written.
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
            manifest.save(below(root, where), rest)
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
    path.unlink(missing_ok=True)
    os.symlink(piece.text, path)
    files.sync_folder(path.parent)


def _content(path: Path) -> bytes | None:
    """Return what is there now, None where nothing is; a link is made again."""
    return path.read_bytes() if path.is_file() and not path.is_symlink() else None


def _undo(root: Path, done: Iterable[tuple[Piece, bytes | None]], begun: Manifest) -> None:
    for piece, content in done:
        with suppress(OSError):
            if content is None:
                below(root, piece.path).unlink(missing_ok=True)
            else:
                files.replace(below(root, piece.path), content, mode=0o644)
    sweep(root, begun.folders)


def _save_or_drop(path: Path, known: Manifest | None) -> None:
    with suppress(OSError):
        if known is None:
            files.remove(path)
        else:
            manifest.save(path, known)


def _failure(path: Path, error: OSError) -> InstallError:
    return InstallError(f"{path} cannot be written: {error.strerror}; nothing was placed")
