"""The lock: any two processes meet at one file, whatever its file system takes."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from hbatune.act import lock
from hbatune.act.lock import Lock, LockFileError, hold_targets, read_held_ids
from hbatune.errors import suggest_remedy


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Have new files below a folder ``run`` refused with the first of these errnos, if any."""
    numbers: list[int] = []
    opened = os.open

    def limited(path: Path | str, flags: int, mode: int = 0o777, **options: int) -> int:
        new = flags & os.O_CREAT and not os.path.exists(path)
        if numbers and new and Path(path).parent.name == "run":
            raise OSError(numbers[0], os.strerror(numbers[0]))
        return opened(path, flags, mode, **options)

    monkeypatch.setattr(os, "open", limited)
    return numbers


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_spare_file_replaces_unmakable_first(tmp_path: Path, full: list[int], number: int) -> None:
    path, spare = tmp_path / "run/lock", tmp_path / "state/lock"
    full.append(number)
    with Lock(path, spare=spare):
        assert (path.exists(), spare.exists()) == (False, True)
    full.clear()
    with Lock(path, spare=spare) as acquired:
        assert path.exists()
        assert acquired._descriptors.keys() == {path, spare}, "others may hold the spare one"


def test_new_first_file_is_locked(
    tmp_path: Path, full: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, spare = tmp_path / "run/lock", tmp_path / "state/lock"
    full.append(errno.ENOSPC)
    try_lock = lock._try_lock

    def appears(descriptor: int) -> bool:
        full.clear()
        path.touch()  # another process has made it meanwhile, and may have locked only that
        return try_lock(descriptor)

    monkeypatch.setattr(lock, "_try_lock", appears)
    with Lock(path, spare=spare) as acquired:
        assert acquired._descriptors.keys() == {path, spare}


def test_lock_without_file_raises(tmp_path: Path, full: list[int]) -> None:
    full.append(errno.ENOSPC)
    with pytest.raises(LockFileError, match="run/lock cannot be made: No space left") as caught:
        Lock(tmp_path / "run/lock").__enter__()
    assert caught.value.exit_code == 1
    assert "free space" in (caught.value.hint or "")


def test_remedy_fits_errno(monkeypatch: pytest.MonkeyPatch) -> None:
    def of(number: int, uid: int = 0) -> str:
        monkeypatch.setattr(os, "geteuid", lambda: uid)
        return suggest_remedy(OSError(number, os.strerror(number)), "/run/x")

    assert of(errno.EACCES, uid=1000) == of(errno.EPERM, uid=1000) == "run it as root"
    for number in (errno.EACCES, errno.EROFS, errno.ENOSPC, errno.EMFILE, errno.EIO):
        assert "run it as root" not in of(number)
    assert "remount it read-write" in of(errno.EROFS)
    assert "free space" in of(errno.EDQUOT)


def test_removed_lock_excludes_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lock"
    opened = os.open

    def open_then_lose(name: Any, *options: Any, **more: Any) -> int:
        descriptor = opened(name, *options, **more)
        if name == path and not lost:
            lost.append(os.fstat(descriptor).st_ino)
            path.unlink()
        return descriptor

    lost: list[int] = []
    monkeypatch.setattr(os, "open", open_then_lose)
    with Lock(path):
        assert path.exists(), "another process would otherwise lock another file"
    assert lost


def test_relocking_is_refused(tmp_path: Path) -> None:
    with Lock(tmp_path / "lock"), pytest.raises(RuntimeError, match="locked by this process"):
        Lock(tmp_path / "lock").__enter__()


def test_damaged_hold_is_ignored(tmp_path: Path) -> None:
    with hold_targets(tmp_path, ["a"]):
        (tmp_path / "1").write_text("{")
        assert read_held_ids(tmp_path) == {"a"}
        (tmp_path / str(os.getpid())).unlink()
    assert read_held_ids(tmp_path) == read_held_ids(tmp_path / "none") == frozenset()
