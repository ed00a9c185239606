"""What is written down survives a power cut: a name is durable once its folder is synced."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hbatune.act import files

DATA = b"what was there before"


class Trace:
    """The calls that make files durable, in their order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        real_fsync = os.fsync

        def fsync(descriptor: int) -> None:
            kind = "folder" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "file"
            self.calls.append(f"sync {kind}")
            real_fsync(descriptor)

        monkeypatch.setattr(os, "fsync", fsync)
        for name in ("rename", "link", "unlink"):
            self._follow(monkeypatch, name)

    def _follow(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        real: Callable[..., None] = getattr(os, name)

        def call(*args: object, **options: object) -> None:
            real(*args, **options)
            self.calls.append(name)

        monkeypatch.setattr(os, name, call)


def replace(path: Path) -> None:
    files.replace(path, DATA)


def change(path: Path) -> None:
    files.replace(path, DATA, mode=0o600, folder_mode=0o700, keep_access=True)


def save_over(path: Path) -> None:
    files.save(path, DATA, over=True)


@pytest.mark.parametrize("write", [replace, change, save_over])
def test_rename_syncs_folder(
    write: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = Trace(monkeypatch)
    write(tmp_path / "journal.json")
    assert (tmp_path / "journal.json").read_bytes() == DATA
    assert [call for call in trace.calls if call != "unlink"] == [
        "sync file",
        "rename",
        "sync folder",
    ]


def test_link_syncs_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = Trace(monkeypatch)
    files.save(tmp_path / "report.html", DATA, over=False)
    assert trace.calls == ["sync file", "link", "unlink", "sync folder"]


def test_removal_syncs_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "journal.json").write_bytes(DATA)
    trace = Trace(monkeypatch)
    files.remove(tmp_path / "journal.json")
    assert not (tmp_path / "journal.json").exists()
    assert trace.calls[-1] == "sync folder"


def test_existing_file_needs_overwrite(tmp_path: Path) -> None:
    path = tmp_path / "host"
    files.save(path, b"first", over=False)
    with pytest.raises(FileExistsError):
        files.save(path, b"second", over=False)
    assert path.read_bytes() == b"first"
    files.save(path, b"third", over=True)
    assert path.read_bytes() == b"third"
    assert os.listdir(tmp_path) == ["host"]


@pytest.mark.parametrize("over", [False, True])
def test_irregular_files_are_not_overwritten(tmp_path: Path, over: bool) -> None:
    victim, link, fifo = tmp_path / "victim", tmp_path / "link", tmp_path / "fifo"
    victim.write_bytes(b"precious")
    link.symlink_to(victim)
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    os.mkfifo(fifo)
    for path in (link, tmp_path / "dangling", fifo, tmp_path):
        with pytest.raises(FileExistsError):
            files.save(path, b"new", over=over)
    assert victim.read_bytes() == b"precious"
    assert link.is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["dangling", "fifo", "link", "victim"]
