"""Metrics reach node_exporter's folder."""

import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from hbatune.errors import UsageError
from hbatune.watch.exporter import Exporter

CONTENT = b"# TYPE hbatune_info gauge\nhbatune_info 1.0\n"
GET = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
def folder(tmp_path: Path) -> Callable[[], Path]:
    def make() -> Path:
        directory = tmp_path / "textfile"
        directory.mkdir()
        return directory

    return make


def test_textfile_is_written_and_removed(folder: Callable[[], Path]) -> None:
    directory = folder()
    outlets = Exporter(str(directory))
    for content in (b"first\n", CONTENT):
        outlets.publish(content)
    assert [path.name for path in directory.iterdir()] == ["hbatune.prom"]
    file = directory / "hbatune.prom"
    assert file.read_bytes() == CONTENT
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    outlets.close()
    assert not file.exists(), "a daemon that is gone says nothing of the present"


def test_textfile_symlink_is_not_followed(folder: Callable[[], Path], tmp_path: Path) -> None:
    """The folder may be another user's, who may put there what he likes."""
    directory, precious = folder(), tmp_path / "precious"
    precious.write_text("mine")
    for name in (".hbatune.prom.new", "hbatune.prom"):
        (directory / name).symlink_to(precious)
    Exporter(str(directory)).publish(CONTENT)
    assert precious.read_text() == "mine"
    assert (directory / "hbatune.prom").read_bytes() == CONTENT


def test_missing_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        Exporter(str(tmp_path / "none"))
