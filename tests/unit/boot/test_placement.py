"""Tests of hbatune/boot/placement.py."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from hbatune.act import files
from hbatune.boot import placement
from hbatune.boot.placement import InstallError, Piece, join_root
from tests.unit.installed_tree import RULES, UNIT, tree

MANIFEST = Path("/var/lib/hbatune/installed.json")


PIECES = (Piece(UNIT, "unit\n"), Piece(RULES, "rules\n"), Piece(Path("/etc/link"), "/x", link=True))


def test_removal_restores_original_tree(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    before = tree(tmp_path)
    assert len(placement.place_pieces(tmp_path, MANIFEST, PIECES)) == 3
    assert join_root(tmp_path, RULES).read_text() == "rules\n"
    assert (tmp_path / "etc/link").readlink() == Path("/x")
    removal = placement.remove_files(tmp_path, MANIFEST)
    placement.remove_empty_folders(tmp_path, removal.folders)
    assert len(removal.gone) == 3
    assert tree(tmp_path) == before


def test_unremovable_folder_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    placement.place_pieces(tmp_path, MANIFEST, PIECES)
    removal = placement.remove_files(tmp_path, MANIFEST)
    (tmp_path / "etc/udev/rules.d/99-other.rules").write_text("")
    placement.remove_empty_folders(tmp_path, removal.folders)  # a folder with another's file stays
    monkeypatch.setattr(Path, "rmdir", refuse)
    with pytest.raises(InstallError, match="cannot be removed: Read-only file system"):
        placement.remove_empty_folders(tmp_path, removal.folders)


def test_repeated_placement_changes_nothing(tmp_path: Path) -> None:
    placement.place_pieces(tmp_path, MANIFEST, PIECES)
    inode = join_root(tmp_path, RULES).stat().st_ino
    assert placement.place_pieces(tmp_path, MANIFEST, PIECES) == []
    assert join_root(tmp_path, RULES).stat().st_ino == inode


def test_edited_file_is_preserved(tmp_path: Path) -> None:
    placement.place_pieces(tmp_path, MANIFEST, PIECES)
    join_root(tmp_path, RULES).write_text("mine\n")
    with pytest.raises(InstallError, match=r"89-hbatune\.rules"):
        placement.place_pieces(
            tmp_path, MANIFEST, (Piece(RULES, "newer\n"), Piece(UNIT, "newer\n"))
        )
    assert join_root(tmp_path, UNIT).read_text() == "unit\n"
    removal = placement.remove_files(tmp_path, MANIFEST)
    assert removal.left == (RULES,)
    assert join_root(tmp_path, RULES).read_text() == "mine\n"
    assert not join_root(tmp_path, UNIT).exists()
    assert placement.remove_files(tmp_path, MANIFEST).left == (RULES,)


def test_foreign_file_is_preserved(tmp_path: Path) -> None:
    join_root(tmp_path, RULES).parent.mkdir(parents=True)
    join_root(tmp_path, RULES).write_text("theirs\n")
    before = tree(tmp_path)
    with pytest.raises(InstallError, match="edited after hbatune wrote it"):
        placement.place_pieces(tmp_path, MANIFEST, PIECES)
    assert tree(tmp_path) == before


def test_failed_placement_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    placement.place_pieces(tmp_path, MANIFEST, PIECES[:1])
    before = tree(tmp_path)
    replace = files.replace

    def full(path: Path, data: bytes, **modes: Any) -> None:
        if path.name == RULES.name:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        replace(path, data, **modes)

    monkeypatch.setattr(files, "replace", full)
    with pytest.raises(InstallError, match=r"89-hbatune\.rules.*Read-only file system"):
        placement.place_pieces(tmp_path, MANIFEST, (Piece(UNIT, "newer\n"), PIECES[1]))
    assert tree(tmp_path) == before


def test_killed_placement_stays_removable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    placement.place_pieces(tmp_path, MANIFEST, PIECES)
    replace = files.replace

    def killed(path: Path, data: bytes, **modes: Any) -> None:
        if path.name == RULES.name:
            raise KeyboardInterrupt
        replace(path, data, **modes)

    with monkeypatch.context() as patched:
        patched.setattr(files, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            placement.place_pieces(
                tmp_path, MANIFEST, (Piece(UNIT, "newer\n"), Piece(RULES, "newer\n"))
            )
    assert not placement.remove_files(tmp_path, MANIFEST).left


@pytest.mark.parametrize("link", ["etc", "var", "etc/udev"])
def test_links_stay_inside_root(tmp_path: Path, link: str) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / link).parent.mkdir(parents=True)
    outside.mkdir()
    (root / link).symlink_to(outside)
    with pytest.raises(InstallError, match=r"leads out of"):
        placement.place_pieces(root, MANIFEST, PIECES)
    assert list(outside.iterdir()) == []
    assert list(root.rglob("hbatune*")) == []


@pytest.mark.parametrize("path", ["/etc/udev/rules.d/file", "/../outside/file"])
def test_removal_stays_inside_root(tmp_path: Path, path: str) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "etc/udev").mkdir(parents=True)
    outside.mkdir()
    (outside / "file").write_text("rules\n")
    (root / "etc/udev/rules.d").symlink_to(outside)
    manifest = placement.Manifest((placement.PlacedFile(path, (placement.hash_data(b"rules\n"),)),))
    placement.save_manifest(join_root(root, MANIFEST), manifest)
    with pytest.raises(InstallError, match=r"leads out of"):
        placement.remove_files(root, MANIFEST)
    assert (outside / "file").exists()


def test_unknown_manifest_is_refused(tmp_path: Path) -> None:
    file = join_root(tmp_path, MANIFEST)
    file.parent.mkdir(parents=True)
    file.write_text('{"schema": "hbatune.installed/9"}')
    with pytest.raises(placement.ManifestError, match="schema"):
        placement.load_installed(tmp_path, MANIFEST)
