"""The archives that the lab's roots are made from."""

from pathlib import Path

import pytest

from tests.lab.debian import archives

SECURITY = "deb http://security.debian.org/debian-security bookworm-security main"


def apt_that_knows(folder: Path, *targets: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "apt-get"
    lines = "".join(f"echo '{target}'\n" for target in targets)
    program.write_text(f"#!/bin/sh\n{lines}")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def test_apt_mirrors_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apt_that_knows(
        tmp_path,
        "Debian|bookworm|deb http://mirror/debian bookworm main",
        "Debian|bookworm-security|deb http://mirror/security bookworm-security main",
        "Docker|bookworm|deb http://docker bookworm stable",
        monkeypatch=monkeypatch,
    )
    assert archives() == [
        "deb http://mirror/debian bookworm main",
        "deb http://mirror/security bookworm-security main",
    ]


def test_security_archive_is_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = "deb http://mirror/debian bookworm main"
    apt_that_knows(tmp_path, f"Debian|bookworm|{known}", monkeypatch=monkeypatch)
    assert archives() == [known, SECURITY]


def test_foreign_release_uses_debian_archives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apt_that_knows(
        tmp_path,
        "Debian|trixie|deb http://mirror/debian trixie main",
        monkeypatch=monkeypatch,
    )
    assert SECURITY in archives()
    assert not any("trixie" in line for line in archives())


def test_trixie_root_uses_trixie_archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = "deb http://mirror/debian trixie main"
    apt_that_knows(tmp_path, f"Debian|trixie|{known}", monkeypatch=monkeypatch)
    assert archives("trixie") == [known, SECURITY.replace("bookworm", "trixie")]
    assert all(" bookworm" in line for line in archives("bookworm"))
