"""The compiled rules of a build: the same profiles, and never in the place of a file that differs.

A checkout has none, so that they are made here.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hbatune.policy import library as load
from hbatune.policy.library import Library, list_profiles, load_profile, load_sources
from hbatune.policy.toml_files import PolicyError
from hbatune.shipped import find_shipped
from tools.compiled_rules import compile_shipped

NAMES = [each.name for each in list_profiles(Library(find_shipped("rules"), Path("/nowhere")))]


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    """A copy of the shipped rules that was compiled, and a site without files."""
    folder = tmp_path / "rules"
    shutil.copytree(find_shipped("rules"), folder)
    file = tmp_path / "compiled.msgpack"
    file.write_bytes(compile_shipped(folder))
    monkeypatch.setattr(load, "COMPILED_FILE", file)
    _forget()
    yield Library(folder, tmp_path / "site")
    _forget()


def _forget() -> None:
    load.load_compiled.cache_clear()
    load_sources.cache_clear()


@pytest.fixture
def without_parser(library: Library, monkeypatch: pytest.MonkeyPatch) -> Library:
    """The same, where parsing any file fails the test."""

    def parse(*_: object, **__: object) -> None:
        raise AssertionError("a file was parsed")

    monkeypatch.setattr(load, "read_toml", parse)
    return library


def _parsed(name: str, library: Library, monkeypatch: pytest.MonkeyPatch) -> object:
    """Return the profile as a checkout would have it."""
    monkeypatch.setattr(load, "COMPILED_FILE", Path("/nowhere"))
    _forget()
    return load_profile(name, library)


@pytest.mark.parametrize("name", NAMES)
def test_compiled_profile_equals_parsed(
    name: str, without_parser: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = load_profile(name, without_parser)
    monkeypatch.undo()
    assert found == _parsed(name, without_parser, monkeypatch)


def test_compiled_listing_skips_parsing(without_parser: Library) -> None:
    assert [each.name for each in list_profiles(without_parser)] == NAMES


def test_compiled_sources_equal_parsed(
    without_parser: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = dict(without_parser.sources())
    monkeypatch.undo()
    monkeypatch.setattr(load, "COMPILED_FILE", Path("/nowhere"))
    _forget()
    assert found == without_parser.sources()


def test_changed_file_is_parsed(library: Library) -> None:
    file = library.shipped / "base.toml"
    text = file.read_text()
    rule = next(each for each in load_profile("oltp", library).rules if each.file == str(file))
    file.write_text(text.replace(rule.because, "somebody has changed it"))
    assert "somebody has changed it" in [
        each.because for each in load_profile("oltp", library).rules
    ]


def test_changed_sources_force_parsing(library: Library) -> None:
    """A part may cite what is no longer there."""
    rule = load_profile("oltp", library).rules[0]
    file = library.shipped / "sources.toml"
    file.write_text(file.read_text().replace(f"[source.{rule.source}]", "[source.D0-99]"))
    _forget()
    with pytest.raises(PolicyError, match=rule.source):
        load_profile("oltp", library)


@pytest.mark.parametrize("content", [b"", b"\x81", b"{}", b"\xff" * 100])
def test_broken_compilation_is_ignored(library: Library, content: bytes) -> None:
    load.COMPILED_FILE.write_bytes(content)
    _forget()
    assert load_profile("oltp", library).rules


def test_foreign_compilation_is_ignored(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "__version__", "0.0.0")
    _forget()
    assert load.load_compiled(library.shipped / "sources.toml") is None


def test_site_file_overrides_compiled(library: Library) -> None:
    folder = library.site / "profiles"
    folder.mkdir(parents=True)
    (folder / "base.toml").write_text(
        '[[rule]]\nname = "own"\nsetting = "nr_requests"\nvalue = 77\n'
        'because = "ours"\nsource = "site"\n'
    )
    names = [each.name for each in load_profile("oltp", library).rules]
    assert "own" in names
    assert str(library.shipped / "base.toml") not in load_profile("oltp", library).files


def test_checkout_has_no_compiled_file() -> None:
    """What was left there would hide the first change of a setting's range."""
    assert not Path(load.__file__).with_name("compiled.msgpack").exists()


def test_compiled_load_imports_no_parser(library: Library) -> None:
    code = (
        "import sys; from pathlib import Path; from hbatune.policy import library as load\n"
        f"load.COMPILED_FILE = Path({str(load.COMPILED_FILE)!r})\n"
        f"library = load.Library(Path({str(library.shipped)!r}), Path('/nowhere'))\n"
        "load.load_profile('oltp', library)\n"
        "print(*{'tomllib', 'hbatune.policy.schema', 'hbatune.policy.rules'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    assert done.stdout.decode().split() == []
