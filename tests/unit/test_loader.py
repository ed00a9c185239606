"""The loader: whatever a file is or holds, reading it is short and ends in a value or a reason."""

import json
import os
import resource
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import msgspec
import pytest
from msgspec import Struct

from hbatune import loader
from hbatune.loader import FOREIGN_BOUNDS, MAX_DEPTH, SMALL_BOUNDS, Bounds, UnusableFileError

NUMBERS = dict[str, float | int | list[float]]


def refused(data: bytes, bounds: Bounds = SMALL_BOUNDS) -> str:
    with pytest.raises(UnusableFileError) as error:
        loader.require_bounded(data, bounds)
    return str(error.value)


def test_file_decodes_as_requested_type(tmp_path: Path) -> None:
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_bytes(b'{"a": 1}')
    link.symlink_to(path)
    assert loader.load(path, dict[str, int], SMALL_BOUNDS) == loader.load(
        link, dict[str, int], SMALL_BOUNDS
    )
    with pytest.raises(UnusableFileError, match="Expected `str`, got `int`"):
        loader.load(path, dict[str, str], SMALL_BOUNDS)


def test_missing_and_unreadable_files_differ(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        loader.load(tmp_path / "none", dict[str, int], SMALL_BOUNDS)
    with pytest.raises(UnusableFileError, match="null"):
        loader.load(Path("a\0b"), dict[str, int], SMALL_BOUNDS)
    (tmp_path / "file").touch()
    with pytest.raises(UnusableFileError, match="Not a directory"):
        loader.load(tmp_path / "file" / "below", dict[str, int], SMALL_BOUNDS)


def test_only_regular_files_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fifo, link, bound = tmp_path / "fifo", tmp_path / "link", tmp_path / "socket"
    os.mkfifo(fifo)
    link.symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(bound))
    # Opening a watchdog's device starts it, and closing a tape's rewinds it.
    monkeypatch.setattr(os, "open", lambda *_: pytest.fail("opened"))
    for path in (fifo, link, bound, tmp_path, Path("/dev/null")):
        with pytest.raises(UnusableFileError, match="not a regular file"):
            loader.load(path, dict[str, int], SMALL_BOUNDS)


def test_swapped_fifo_does_not_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, before = tmp_path / "file", os.stat(__file__)
    os.mkfifo(path)
    monkeypatch.setattr(os, "stat", lambda _: before)
    with pytest.raises(UnusableFileError, match="not a regular file"):
        loader.read_bytes(path, 1)


def test_size_limit_is_enforced(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert loader.read_bytes(path, 5) == b"12345"
    with pytest.raises(UnusableFileError, match="larger than 4 bytes"):
        loader.read_bytes(path, 4)
    os.truncate(path, 1 << 40)
    with pytest.raises(UnusableFileError, match="larger than 16 MiB"):
        loader.read(path, FOREIGN_BOUNDS)


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"a":'])
def test_nesting_depth_is_bounded(opening: str) -> None:
    levels = opening.count("[") + opening.count("{")
    closing = "".join({"[": "]", "{": "}"}.get(bracket, "") for bracket in reversed(opening))
    times = MAX_DEPTH // levels
    loader.require_bounded(f"{opening * times}1{closing * times}".encode(), SMALL_BOUNDS)
    too_many = times + 1
    for data in (f"{opening * too_many}1{closing * too_many}", opening * 3_000):
        assert "levels deep" in refused(data.encode())


@pytest.mark.parametrize(
    "text",
    [
        b'"[[[[[[{{{{"',
        rb'"\"[[[[{{{{\\"',
        b'"","[","","{{",""',
        b'[],{},[{}],[[],"]"]',
    ],
)
def test_string_brackets_add_no_depth(text: bytes) -> None:
    loader.require_bounded(b"[" + b",".join([text] * 500) + b"]", SMALL_BOUNDS)
    nested = b"[" * MAX_DEPTH + text + b",[1]" + b"]" * MAX_DEPTH
    assert "levels deep" in refused(nested)


@pytest.mark.parametrize(
    "number",
    [
        *("1e20", "-1e999", "1E+400", "12.5e+0100", "1e-100", "1e-0999", "1.5e99999999999"),
        *("9" * 21, "-" + "9" * 5_000, "0." + "0" * 320 + "1"),
    ],
)
def test_extreme_numbers_are_refused(number: str) -> None:
    for text in (f"[{number}]", f'{{"a": {number} }}', f"[1, {number}, 2]", f"[\n{number}\n]"):
        assert "out of range" in refused(text.encode())


@pytest.mark.parametrize(
    "text", ["18446744073709551615", "1e19", "1.5e-99", "-0.1234567890123456789", '"a:1e999"']
)
def test_ordinary_numbers_are_accepted(text: str) -> None:
    loader.require_bounded(f"[{text}, {text}]".encode(), SMALL_BOUNDS)


def test_value_count_is_bounded() -> None:
    assert "more in it" in refused(b"[" + b"1," * SMALL_BOUNDS.values + b"1]")
    assert "more in it" in refused(b"[" + b"{}," * SMALL_BOUNDS.objects + b"{}]")


WORST = {
    "strings": b'["' + b'","'.join(b"%d" % number for number in range(1_600_000)) + b'"]',
    "dicts": b'{"a":{' + b",".join(b'"%x":{"a":1}' % number for number in range(390_000)) + b"}}",
    "keys": b"{" + b",".join(b'"%x":[]' % number for number in range(800_000)) + b"}",
    "wide": '["\N{GRINNING FACE}'.encode() + b"a" * (15 << 20) + b'"]',
    "quotes": b'"' * (16 << 20),
    "zeros": b"[1e" + b"0" * (15 << 20) + b"]",
}
"""What takes the most memory for its size, or the most steps."""

_MEASURED = """
    import sys
    from pathlib import Path
    from typing import Any
    from hbatune import loader
    try:
        found = loader.load(Path(sys.argv[1]), Any, loader.FOREIGN_BOUNDS)
    except loader.UnusableFileError:
        pass
    status = Path("/proc/self/status").read_text().split()
    print(int(status[status.index("VmHWM:") + 1]) // 1024)
"""


@pytest.mark.parametrize("kind", WORST)
def test_hostile_files_cost_little(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(WORST[kind])
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_MEASURED), path],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (20, 20)),
    )
    mebibytes = int(ran.stdout)
    assert mebibytes <= 256


class Part(Struct, frozen=True):
    path: str
    size: int = 0
    inner: dict[str, int] = {}


class Whole(Struct, frozen=True):
    parts: tuple[Part, ...] = ()
    last: Part | None = None
    schema: str = "x/1"


def test_save_preserves_newer_fields() -> None:
    before = {
        "parts": [
            {"path": "a", "size": 1, "inner": {"gone": 1}, "colour": "red"},
            {"path": "b", "size": 2, "inner": {}},
            {"path": "c", "size": 3, "inner": {}, "deep": [{"er": 1}]},
        ],
        "last": {"path": "z", "size": 0, "inner": {}, "why": "that"},
        "schema": "x/1",
        "pinned": ["a"],
    }
    # a has changed, b is gone, c is as it was, d is new.
    after = Whole((Part("d"), Part("c", 3), Part("a", 9)), Part("z", 1))
    merged = json.loads(loader.encode_merged(after, json.dumps(before).encode()))
    assert merged == {
        "parts": [
            {"path": "d", "size": 0, "inner": {}},
            {"path": "c", "size": 3, "inner": {}, "deep": [{"er": 1}]},
            {"path": "a", "size": 9, "inner": {}, "colour": "red"},
        ],
        "last": {"path": "z", "size": 1, "inner": {}, "why": "that"},
        "schema": "x/1",
        "pinned": ["a"],
    }


class Measured(Struct, frozen=True):
    id: str
    time: int


class Log(Struct, frozen=True):
    records: tuple[Measured, ...]


def test_duplicate_ids_preserve_separate_fields() -> None:
    before = b'{"records":[{"id":"a","time":1,"note":"first"}]}'
    after = Log((Measured("a", 1), Measured("a", 2)))
    assert json.loads(loader.encode_merged(after, before))["records"] == [
        {"id": "a", "time": 1, "note": "first"},
        {"id": "a", "time": 2},
    ]


@pytest.mark.parametrize("before", [b"", b"{", b"[]", b'{"parts": 1}', b'{"last": null}'])
def test_plain_value_encodes_unchanged(before: bytes) -> None:
    value = Whole((Part("a"),))
    assert loader.encode_merged(value, before) == msgspec.json.encode(value)
