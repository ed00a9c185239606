"""The newest kernel: found in the archive or the cache, and the last good one where CI wants it."""

import subprocess
from pathlib import Path

import pytest

from tests.lab import image, kernels
from tests.lab.newest import LAST_GOOD, load_last_good, query_newest, require_release
from tests.lab.problem import LabError

SHOWN = """\
Package: linux-image-amd64
Version: 9.10.2-1~bpo13+1
Depends: linux-base-amd64 (= 9.10.2-1~bpo13+1), linux-image-9.10.2+deb13-amd64 (= 9.10.2-1~bpo13+1)
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and nothing that asks for the last good kernel."""
    monkeypatch.setenv("HBATUNE_LAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HBATUNE_LAB_NEWEST", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def archive(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an apt whose archive has 9.10.2 as its newest kernel, and 9.9.1."""
    programs = tmp_path / "programs"
    programs.mkdir()
    packages = ("linux-image-9.10.2+deb13-amd64", "linux-image-9.9.1+deb13-amd64")
    names = "".join(f"echo {name}; " for name in packages)
    answers = f"case $* in *pkgnames*) {names};; *) echo '{SHOWN}';; esac"
    for name, script in (("apt-get", "exit 0"), ("apt-cache", answers)):
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    return programs


def add_image(cache: Path, release: str) -> Path:
    """Have an image of this kernel, of today's recipe."""
    folder = cache / f"image-trixie-{release}_{image.digest_recipe()}"
    folder.mkdir(parents=True)
    return folder


def test_metapackage_names_kernel(archive: Path) -> None:
    assert query_newest() == "9.10.2+deb13-amd64"
    require_release("9.9.1+deb13-amd64")


def test_lost_release_is_told_with_both_versions(archive: Path) -> None:
    with pytest.raises(LabError, match=r"9\.9\.0\+deb13-amd64.*it has 9\.10\.2\+deb13-amd64"):
        require_release("9.9.0+deb13-amd64")


def test_image_is_not_made_of_lost_release(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HBATUNE_LAB_NEWEST", "last-good")
    with pytest.raises(LabError, match=rf"{load_last_good().replace('+', '.')}.*9\.10\.2"):
        kernels.renew()


def test_archive_decides_what_is_booted(
    archive: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = add_image(cache, "9.10.2+deb13-amd64")
    assert kernels.renew().folder == folder
    assert kernels.kernels() == ("6.1", "6.12", "9.10")
    assert load_last_good() in capsys.readouterr().err


def test_last_good_kernel_ignores_newer_images(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_image(cache, "9.9.1+deb13-amd64")
    add_image(cache, "9.10.2+deb13-amd64")
    assert kernels.find_series("newest") == "9.10"
    monkeypatch.setenv("HBATUNE_LAB_NEWEST", "last-good")
    assert load_last_good().startswith(kernels.find_series("newest") + ".")


def test_silent_archive_leaves_last_good_kernel(
    archive: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (archive / "apt-get").write_text("#!/bin/sh\necho 'no route' >&2\nexit 100\n")
    folder = add_image(cache, load_last_good())
    assert kernels.renew().folder == folder
    assert "no route" in capsys.readouterr().err


def test_unknown_kernel_is_refused(cache: Path) -> None:
    with pytest.raises(LabError, match=r"no kernel 6\.13: it has 6\.1, 6\.12, "):
        kernels.find_series("6.13")


def test_ci_boots_last_good_kernel(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new backport must not break an unrelated change."""
    (archive / "make").write_text('#!/bin/sh\necho "$HBATUNE_LAB_NEWEST $*"\n')
    (archive / "make").chmod(0o755)
    monkeypatch.setenv("PATH", f"{archive}:/usr/bin:/bin")
    words = [LAST_GOOD.parents[2] / ".ci/run"]
    assert subprocess.run(words, check=True, capture_output=True, text=True).stdout == (
        "last-good test\n"
    )


def test_last_good_file_has_one_release() -> None:
    assert len(LAST_GOOD.read_text().split()) == 1
