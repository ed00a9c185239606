"""Files that are no usable text are refused with a reason, whatever they are."""

import os
import string
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbatune.policy.toml_files import MAX_FILE_BYTES, PolicyError, TomlFile, read_toml
from tests.unit.site_folder import SiteFolder


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"title = '\xff'\n", "line 1: not valid UTF-8"),
        (b"\n\n# \xe9\n", "line 3: not valid UTF-8"),
        (b"#" * (MAX_FILE_BYTES + 1), "larger than"),
        (b"a = " + b"[" * 100_000, "too deep"),
        (b"a = 1" + b"0" * 5000, "too large"),
        (b"a = 2024-13-01", "not valid TOML"),
        (b"a = 1\na = 2\n", "line 2: not valid TOML"),
        (b"\x00", "not valid TOML"),
    ],
)
def test_unusable_text_is_refused(site: SiteFolder, content: bytes, message: str) -> None:
    path = site.put("rules.d/x.toml", content)
    with pytest.raises(PolicyError) as caught:
        site.load()
    assert message in caught.value.message
    assert caught.value.message.startswith(f"{path}: ")


def test_folder_as_file_is_refused(site: SiteFolder) -> None:
    (site.root / "rules.d" / "x.toml").mkdir(parents=True)
    with pytest.raises(PolicyError, match="not a regular file"):
        site.load()


def test_pipe_is_refused_immediately(site: SiteFolder) -> None:
    (site.root / "rules.d").mkdir()
    os.mkfifo(site.root / "rules.d" / "x.toml")
    with pytest.raises(PolicyError, match="not a regular file"):
        site.load()


def test_device_is_refused_unopened(site: SiteFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    (site.root / "rules.d").mkdir()
    (site.root / "rules.d" / "x.toml").symlink_to("/dev/zero")
    real, opened = os.open, list[str]()

    def noted(path: str, *arguments: int, **more: int) -> int:
        opened.append(str(path))
        return real(path, *arguments, **more)

    monkeypatch.setattr(os, "open", noted)
    with pytest.raises(PolicyError, match="not a regular file"):
        site.load()
    assert not [path for path in opened if path.endswith("x.toml")]


def test_huge_file_is_refused_early(site: SiteFolder) -> None:
    path = site.put("rules.d/x.toml", "")
    os.truncate(path, 1 << 40)
    with pytest.raises(PolicyError, match="larger than"):
        site.load()


def test_file_as_folder_is_refused(site: SiteFolder) -> None:
    site.put("rules.d", "")
    with pytest.raises(PolicyError, match="cannot be read: Not a directory"):
        site.load()


def test_unresolvable_link_is_refused(site: SiteFolder) -> None:
    (site.root / "rules.d").mkdir()
    link = site.root / "rules.d" / "x.toml"
    link.symlink_to("nowhere")
    with pytest.raises(PolicyError, match="is not there"):
        site.load()
    link.unlink()
    link.symlink_to("x.toml")
    with pytest.raises(PolicyError, match="cannot be read: Too many levels"):
        site.load()


def test_unrelated_files_are_ignored(site: SiteFolder) -> None:
    site.put("rules.d/README", "not TOML")
    site.put("rules.d/x.toml.bak", "not TOML")
    site.load()


def test_key_line_is_located() -> None:
    text = '\n[a]\nb = 1\n"c" = 2\n[[d]]\ne = 3\n[[d]]\ne = { f = 4, g = 5 }\n[h.i]\nj = 6\n'
    file = TomlFile(Path("x"), text, {})
    assert file.line(("a",)) == 2
    assert file.line(("a", "c")) == 4
    assert file.line(("d", 1, "e")) == 8
    assert file.line(("d", 1, "e", "g")) == 8
    assert file.line(("d", 1, "missing")) == 7
    assert file.line(("nowhere",)) is None


def test_lines_of_nested_tables_are_located() -> None:
    text = (
        '[[rule]]\nname = "a"\n[rule.when]\nfamily = "x"\n[[rule]]\n[rule.when]\nfamily = "y"\n'
        '[[site.array]]\nhosts = 1\n[[site.array]]\nhosts = 2\n[site.members]\n"0000:03:00.0" = 5\n'
        "[watch]\nalert.cpu = 1 # cpu = 2\nuses = [\n  { cpu = 1 },\n]\n"
    )
    file = TomlFile(Path("x"), text, {"rule": [{}, {}]})
    assert file.line(("rule", 1, "when", "family")) == 7
    assert file.line(("site", "array", 1, "hosts")) == 11
    assert file.line(("site", "members", "0000:03:00.0")) == 13
    assert file.line(("watch", "alert", "cpu")) == 15
    assert file.line(("watch", "uses", 0, "cpu")) == 16
    assert [part.line(("rule", 0)) for part in file.split_tables()] == [1, 5]
    assert [part.line(("rule", 0, "when", "family")) for part in file.split_tables()] == [4, 7]


def test_failed_reads_close_descriptors(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(PolicyError):
            read_toml(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before


_KEYS = [
    *("rule", "objective", "probe", "title", "include", "name", "when", "setting", "value"),
    *("at_least", "leave", "because", "source", "protocol", "link", "gen", "vendor", "tri_mode"),
    *("p99_ms", "depth", "x", '"a b"', '"\\u001b"'),
]
_VALUES = st.recursive(
    st.one_of(
        st.integers().map(str),
        st.floats().map(str),
        st.sampled_from(["true", "false", "2024-01-01", "12:00:00", "''", "'sas'", "'D0-1'"]),
        st.sampled_from(["'queue_depth'", "'scheduler'", "'oltp'", "'site'", "'[a-'", "2048"]),
        st.text(string.printable, max_size=8).map(lambda text: "'" + text + "'"),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: "[" + ", ".join(items) + "]"),
        st.dictionaries(st.sampled_from(_KEYS), inner, max_size=3).map(
            lambda items: "{" + ", ".join(f"{key} = {value}" for key, value in items.items()) + "}"
        ),
    ),
    max_leaves=6,
)
_LINES = st.one_of(
    st.tuples(st.sampled_from(_KEYS), _VALUES).map(" = ".join),
    st.sampled_from(_KEYS).map(lambda key: f"[[{key}]]"),
    st.sampled_from(_KEYS).map(lambda key: f"[{key}]"),
    st.text(max_size=10),
)
_TABLE = st.dictionaries(st.sampled_from(_KEYS), _VALUES, max_size=8).map(
    lambda table: "\n".join(["[[rule]]", *(f"{key} = {value}" for key, value in table.items())])
)
_TEXTS = st.one_of(
    st.binary(max_size=50),
    st.lists(_LINES, max_size=8).map(lambda lines: "\n".join(lines).encode()),
    st.lists(_TABLE, max_size=3).map(lambda tables: "\n".join(tables).encode()),
)


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> SiteFolder:
    """Return a site folder that example after example writes into."""
    return SiteFolder(tmp_path_factory.mktemp("fuzz") / "etc")


@settings(max_examples=300, deadline=None)
@given(profile=_TEXTS, rules=_TEXTS)
def test_random_text_never_crashes_loader(fuzzed: SiteFolder, profile: bytes, rules: bytes) -> None:
    fuzzed.put("profiles/mine.toml", profile)
    fuzzed.put("rules.d/x.toml", rules)
    for name in ("mine", "oltp"):
        message = ""
        try:
            fuzzed.load(name)
        except PolicyError as error:
            message = error.message
        assert message.isprintable()
