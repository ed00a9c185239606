"""`hbatune size`: what it says, and its exit code."""

import json
import re
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from hbatune.cli import main
from hbatune.snapshot.file import encode_snapshot
from hbatune.text.watch_view import Totals, WatchDocument
from hbatune.watch.readings import Reading
from tests.documented import validate
from tests.unit.fleets import host

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def snapshot(tmp_path: Path) -> list[str]:
    path = tmp_path / "db1.snap"
    path.write_bytes(encode_snapshot(host(1)))
    return ["--snapshot", str(path)]


def sized(capsys: Capture, *words: str) -> tuple[int, str, str]:
    code = main(["size", *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_lines_name_sources(snapshot: list[str], capsys: Capture) -> None:
    load = ("--iops", "200k", "--reads", "70", "--p99", "2", "--all")
    code, out, _ = sized(capsys, *load, *snapshot)
    assert code == 1
    described = "200,000 IOPS of 4K, 70 % reads, 0.82 GB/s, p99 of at most 2 ms"
    assert out.startswith(f"db1 does not carry {described}, with 30 % of everything free.\n")
    nvme = r"^nvme +2 +2 +262,500 IOPS +0\.56 +met +56 .*; knee at 64 to 128 +D0-12, D0-15, D0-9$"
    assert re.search(nvme, out, re.M), out
    assert re.search(r"^sata ssd +16 .* missed +32 at that p99 \(D0-12\) +D0-12, D0-15$", out, re.M)
    assert re.search(r"^Gen3 x8 +1 +5\.85 +D4-9$", out, re.M)
    assert re.search(
        r"^57CE \(D4\) +Gen3 +5 +1 +51 % +2 +more than 35 Gen1, .* +D4-12, D4-10, D4-13$", out, re.M
    )
    assert re.search(r"^short +drives +1 +4 +sas ssd +D0-12, D0-15$", out, re.M)


def test_foreign_adapters_need_all(snapshot: list[str], capsys: Capture) -> None:
    """Tables of links and RAID adapters that a host does not have hide the answer."""
    _, out, _ = sized(capsys, "--iops", "200k", *snapshot)
    assert "57CE" not in out
    assert "Gen5" not in out
    assert "`--all` adds links" in out


def test_pair_of_host_is_shown(tmp_path: Path, capsys: Capture) -> None:
    card = replace(host(1).machine.adapters[0], family="ipr")
    snapshot = host(1)
    machine = replace(snapshot.machine, adapters=(card, *snapshot.machine.adapters[1:]))
    path = tmp_path / "power.snap"
    path.write_bytes(encode_snapshot(replace(snapshot, machine=machine)))
    _, out, _ = sized(capsys, "--iops", "200k", "--snapshot", str(path))
    assert "57CE (D4)" in out


def test_shortfall_exits_1(snapshot: list[str], capsys: Capture) -> None:
    assert sized(capsys, "--iops", "50k", *snapshot)[0] == 0
    assert sized(capsys, "--iops", "500k", *snapshot)[0] == 1


def test_missing_figure_exits_1(snapshot: list[str], capsys: Capture) -> None:
    """No document has the throughput of the host's SAS drive."""
    code, out, _ = sized(capsys, "--gb-per-s", "1", "--block", "64k", *snapshot)
    assert out.startswith("No document shows whether db1 carries 15,259 IOPS of 64K")
    assert re.search(r"^sas ssd +no figure ", out, re.M)
    assert code == 1


@pytest.mark.parametrize(
    ("words", "code", "answer", "headline"),
    [
        (["--iops", "50k"], 0, "carries", "db1 carries 50,000 IOPS of 4K, "),
        (["--iops", "500k"], 1, "short", "db1 does not carry 500,000 IOPS of 4K, "),
        (["--gb-per-s", "1", "--block", "64k"], 1, "unknown", "No document shows whether db1 "),
        (["--hosts", "2", "--luns", "4", "--hbas", "2"], 0, None, None),
    ],
)
def test_json_has_answer(
    words: list[str],
    code: int,
    answer: str | None,
    headline: str | None,
    snapshot: list[str],
    capsys: Capture,
) -> None:
    exit_code, out, _ = sized(capsys, "--json", *words, *snapshot)
    document = json.loads(out)
    validate(document)
    assert (exit_code, document["answer"]) == (code, answer)
    if headline is None:
        assert document["headline"] is None
    else:
        assert document["headline"].startswith(headline)
        assert sized(capsys, *words, *snapshot)[1].startswith(document["headline"])


def test_json_matches_schema(snapshot: list[str], capsys: Capture) -> None:
    _, out, _ = sized(
        capsys,
        "--json",
        "--gb-per-s",
        "11.7",
        "--hosts",
        "2",
        "--luns",
        "4",
        "--hbas",
        "2",
        "--port-limit",
        "2048",
        *snapshot,
    )
    document = json.loads(out)
    validate(document)
    assert document["needs"]["load"]["gb_per_s"] == 11.7
    assert document["depth"]["depth"] == 128


def test_depth_derivation_is_shown(snapshot: list[str], capsys: Capture) -> None:
    words = ["--hosts", "8", "--array", "vnx", "--data-drives", "4", "--luns", "10", "--hbas", "2"]
    code, out, _ = sized(capsys, *words, *snapshot)
    assert code == 0
    share = "1600 of a port / 8 hosts / 20 paths of a host through it (10 LUNs)"
    assert re.search(rf"^port's share +10 +{re.escape(share)} +D2-4, V-emc-port$", out, re.M), out
    limit = "32 + 14 * 4 data drives of EMC CLARiiON and VNX / 2 paths in use"
    assert re.search(rf"^LUN's limit +44 +{re.escape(limit)} +D2-5$", out, re.M), out
    assert re.search(r"^queue_depth +10 +the lowest of these +D2-4$", out, re.M)


def line(
    iops: float, read: float, written: float, adapter: str | None = "0000:01:00.0"
) -> dict[str, object]:
    return {
        "iops": iops,
        "read_bytes_per_s": read,
        "write_bytes_per_s": written,
        "adapter": adapter,
        "target": "sda",
    }


def watched(path: Path, *moments: list[dict[str, object]], schema: str = "hbatune.watch/1") -> str:
    lines = (json.dumps({"schema": schema, "hostname": "db1", "readings": m}) for m in moments)
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_busiest_watch_moment_counts(tmp_path: Path, snapshot: list[str], capsys: Capture) -> None:
    file = watched(
        tmp_path / "watch.jsonl",
        [line(1000, 4e6, 0)],
        # Two paths, and the map over them, whose I/O is theirs.
        [line(30_000, 150e6, 50e6), line(20_000, 150e6, 50e6), line(50_000, 300e6, 100e6, None)],
        [line(10, 4e4, 0)],
    )
    _, out, _ = sized(capsys, "--json", "--watch", file, *snapshot)
    load = json.loads(out)["needs"]["load"]
    assert load == {
        "iops": 50_000,
        "gb_per_s": 0.4,
        "block": 8000,
        "reads": 75,
        "p99_ms": None,
        "hdd_iops": None,
    }


def test_size_reads_watch_output(tmp_path: Path, snapshot: list[str], capsys: Capture) -> None:
    reading = msgspec.convert(
        {
            **line(5000, 20.48e6, 0),
            **dict.fromkeys(("mean_ms", "p99_ms", "p999_ms", "stalled_ms", "depth", "knee")),
            **{"id": "wwn-1", "seconds": 2.0, "in_flight": 1.0, "utilisation": 0.5},
            **{"lowered": False, "counted": {}, "risen": {}, "objective_ms": None},
        },
        Reading,
    )
    document = WatchDocument(
        hostname="db1",
        time=1.0,
        readings=(reading,),
        adapters=(),
        alerts=(),
        events=(),
        totals=Totals(1, 5000.0, 20.48e6, 0.0, 0),
        worst=None,
    )
    file = tmp_path / "watch.jsonl"
    file.write_bytes(msgspec.json.encode(document) + b"\n")
    _, out, _ = sized(capsys, "--watch", str(file), *snapshot)
    assert out.startswith("db1 carries 5,000 IOPS of 4K, 100 % reads")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "neither a load nor an array is given"),
        ("--iops -5", "--iops takes a number above 0, such as 200000, 200k or 1.1M, and not '-5'"),
        ("--iops nan", "--iops takes a number above 0"),
        ("--iops 1e300", "--iops takes a number above 0"),
        (
            "--iops 1k --block 7",
            "--block takes bytes, a multiple of 512 with k, m or g, up to 1024m, and not '7'",
        ),
        ("--iops 1k --reads 101", "--reads takes a percentage from 0 to 100 and not '101'"),
        ("--iops 1k --headroom 100", "--headroom takes a percentage from 0 to 99 and not '100'"),
        ("--iops 1k --watch x", "--watch has the load, and so has --iops or --gb-per-s"),
        ("--watch nowhere", "'nowhere' cannot be read: No such file or directory"),
        ("--hosts 2 --hbas 2", "db1 has no LUN of a shared array"),
        ("--hosts 2 --luns 2", "db1 has no adapter of a shared array"),
        ("--hosts 2 --hbas 2 --luns 2 --array vnx", "the limit of a LUN of EMC CLARiiON and VNX"),
        (
            "--hosts 2 --hbas 2 --luns 2 --array nix",
            "--array 'nix' matches none of the known",
        ),
        (
            "--hosts 2 --hbas 2 --luns 2 --array ibm",
            "--array 'ibm' matches more than one",
        ),
        ("--hosts 0", "--hosts takes a whole number, at least 1, and not '0'"),
    ],
)
def test_bad_usage_exits_2(words: str, message: str, snapshot: list[str], capsys: Capture) -> None:
    code, out, err = sized(capsys, *words.split(), *snapshot)
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("x\n", "line 1: not what `hbatune watch --json` prints"),
        ('{"schema": "hbatune.plan/1", "readings": []}\n', "line 1: has schema hbatune.plan/1"),
        ('{"schema": "hbatune.watch/1", "readings": []}\n', "the output of watch has no I/O"),
        ("", "the output of watch has no I/O"),
        ("[" * 100_000, "line 1: not what"),
        (
            '{"schema": "hbatune.watch/1", "readings": [{"iops": 1e999, "read_bytes_per_s": 1,'
            ' "write_bytes_per_s": 1}]}',
            "line 1: not what",
        ),
    ],
)
def test_invalid_watch_exits_2(
    content: str, message: str, tmp_path: Path, snapshot: list[str], capsys: Capture
) -> None:
    file = tmp_path / "watch.jsonl"
    file.write_text(content)
    code, out, err = sized(capsys, "--watch", str(file), *snapshot)
    assert (code, out) == (2, "")
    assert message in err


def test_output_fits_80_columns(
    snapshot: list[str], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hbatune.text.terminal.get_width", lambda stream=None: 80)
    words = "--iops 900k --reads 20 --p99 2 --hosts 8 --array vnx --data-drives 4 --luns 9 --hbas 2"
    _, out, _ = sized(capsys, *words.split(), *snapshot)
    assert max(map(len, out.splitlines())) <= 80
    assert "No document covers this percentage of writes" in out
    assert "two AA cables for much writing (D4-12)" in " ".join(out.split())
    assert "Random writes without cache hits are faster" in " ".join(out.split())


def test_hdds_take_stated_rate(snapshot: list[str], capsys: Capture) -> None:
    """97 HDDs do not fit on one pair (D4-14). db1 has no HDD, so the SAS SSD carries the load."""
    words = ("--iops", "14550", "--headroom", "0", "--hdd-iops", "150")
    code, out, _ = sized(capsys, *words, *snapshot)
    assert re.search(r"^hdd +97 +1 +150 IOPS +- +- +- +D4-14$", out, re.M), out
    assert "The HDDs take 5 drawers on 2 pairs of adapters with a cache (D4-14)." in out
    assert code == 0


def test_drives_ran_out_before_pair(snapshot: list[str], capsys: Capture) -> None:
    """The documents attached at most 24 SSDs to a pair of 57C4."""
    _, out, _ = sized(capsys, "--iops", "1k", "--all", *snapshot)
    row = r"^57C4 \(D4\) +Gen2 +more than 24 Gen1, 20 Gen2, 10 Gen3, 9 Gen4 +D4-10$"
    assert re.search(row, out, re.M), out


def test_large_blocks_have_no_p99(snapshot: list[str], capsys: Capture) -> None:
    """The documents' p99 is for 4K random reads, so a wanted p99 of large ones has no answer."""
    code, out, _ = sized(capsys, "--gb-per-s", "1", "--p99", "2", *snapshot)
    assert re.search(r"^nvme +1 +1 +1\.70 GB/s +- +- +- +D3-11$", out, re.M), out
    assert code == 1
