"""`report` as a person uses it: a whole page in a file, or a word on why there is none."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from hbatune.act import files, journal
from hbatune.act.paths import Paths
from hbatune.cli import main
from hbatune.facts.model import Machine
from hbatune.probe import history
from hbatune.snapshot.file import encode_snapshot
from tests.unit import report_server as reported
from tests.unit.command_runs import see_machine
from tests.unit.site_folder import SiteFolder
from tests.unit.snapshots import snapshot

Make = Callable[..., str]


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Return a host that was measured and changed."""
    reported_host = reported.host()
    see_machine(monkeypatch, lambda: reported_host)
    history.append(Paths.history, reported.seen().records)
    journal.save(Paths.journal, reported.journal(reported_host))
    return reported_host


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Return a function that creates a report and returns its page."""

    def build_page(*words: str) -> str:
        page = tmp_path / "db1.html"
        assert main(["report", str(page), *words]) == 0
        return page.read_text()

    return build_page


def test_page_covers_host_results(
    host: Machine, make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    page = make("--profile", "oltp")
    assert page.startswith("<!DOCTYPE html>")
    assert "Past depth 32:" in page
    assert "regressed" in page
    assert "lets the block layer" in page
    assert "13 sections" in capsys.readouterr().out


def test_page_needs_no_profile(host: Machine, make: Make) -> None:
    page = make()
    assert "Past depth 32:" in page
    assert "Still to change" not in page


def test_page_names_missing_measurements(
    host: Machine, make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    Paths.history.unlink()
    page = re.sub(r"</?span>", "", make("--profile", "oltp"))
    assert "hbatune probe depth-sweep" in page
    assert "Nothing to show yet: Before and after;" in capsys.readouterr().out


@pytest.mark.parametrize("words", [(), ("--profile", "oltp")])
def test_snapshot_excludes_local_results(
    host: Machine, make: Make, tmp_path: Path, words: tuple[str, ...]
) -> None:
    path = tmp_path / "host.snapshot"
    path.write_bytes(encode_snapshot(snapshot(host)))
    page = make("--snapshot", str(path), *words)
    assert "Interrupts of 0000:81:00.0" in page
    assert "Past depth 32" not in page
    with_results = make("--snapshot", str(path), "--history", str(Paths.history), "--force", *words)
    assert "Past depth 32" in with_results


def test_existing_page_needs_force(
    host: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "precious.html"
    page.write_text("precious")
    assert main(["report", str(page)]) == 2
    assert page.read_text() == "precious"
    assert "--force" in capsys.readouterr().err
    assert main(["report", str(page), "--force"]) == 0
    assert "precious" not in page.read_text()
    assert sorted(os.listdir(tmp_path)) == ["machine", "precious.html"]


@pytest.mark.parametrize("hostname", ["db1", "../db1"])
def test_page_is_named_after_host(
    host: Machine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    hostname: str,
) -> None:
    path, folder = tmp_path / "host.snapshot", tmp_path / "here"
    path.write_bytes(encode_snapshot(snapshot(replace(host, hostname=hostname))))
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr("time.strftime", lambda *words: "2026-11-26")
    name = f"hbatune-{hostname.replace('/', '-')}-2026-11-26.html"
    assert main(["report", "--snapshot", str(path)]) == 0
    assert os.listdir(folder) == [name]
    assert capsys.readouterr().out.startswith(f"{name}: 13 sections")
    (folder / name).write_text("precious")
    assert main(["report", "--snapshot", str(path)]) == 2
    assert (folder / name).read_text() == "precious"
    assert "--force" in capsys.readouterr().err


def test_irregular_file_is_preserved(
    host: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, make_it in (("folder", os.mkdir), ("pipe", os.mkfifo)):
        make_it(tmp_path / name)
        assert main(["report", str(tmp_path / name), "--force"]) == 2
        assert "is not a regular file" in capsys.readouterr().err
    (tmp_path / "link").symlink_to("/dev/null")
    assert main(["report", str(tmp_path / "link"), "--force"]) == 2


def test_missing_folder_is_reported(
    host: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(tmp_path / "nowhere" / "x.html")]) == 2
    assert "cannot be written: No such file or directory" in capsys.readouterr().err
    assert not (tmp_path / "nowhere").exists()


def test_damaged_history_prevents_page(
    host: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files.replace(Paths.history, b"{")
    page = tmp_path / "x.html"
    assert main(["report", str(page)]) != 0
    assert not page.exists()
    assert "history" in capsys.readouterr().err


def test_active_profile_is_default(
    host: Machine, make: Make, site: SiteFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.put("hbatune.toml", 'profile = "balanced"\n')
    assert "<dd>balanced</dd>" in make()


@pytest.mark.parametrize("fault", ["fifo", "folder", "zero", "none", "deep", "huge number"])
def test_foreign_history_exits_2(
    host: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str], fault: str
) -> None:
    path = Path("/dev/zero") if fault == "zero" else tmp_path / "theirs"
    match fault:
        case "fifo":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "deep":
            path.write_text('{"records": ' + "[" * 100_000)
        case "huge number":
            path.write_text('{"records": [], "more": [1e999]}')
    page = tmp_path / "page.html"
    assert main(["report", str(page), "--history", str(path)]) == 2
    assert str(path) in capsys.readouterr().err
    assert not page.exists()


def test_foreign_knee_is_recomputed(host: Machine, tmp_path: Path, make: Make) -> None:
    records = [
        record if record.knee is None else replace(record, knee=replace(record.knee, depth=33))
        for record in reported.kept(host)
    ]
    history.append(tmp_path / "theirs", records)
    page = make("--history", str(tmp_path / "theirs"), "--profile", "oltp")
    assert "Past depth 32:" in page, "found anew in the runs"


def test_huge_sweep_is_thinned(host: Machine, tmp_path: Path, make: Make) -> None:
    records = reported.depth_sweep(host, depths=tuple(range(1, 1_000)))
    history.append(tmp_path / "theirs", records)
    page = make("--history", str(tmp_path / "theirs"))
    assert page.count('class="s0"') < 1_000
