import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from hbatune.policy.library import Library
from hbatune.policy.toml_files import PolicyError
from hbatune.probe.result import Pattern, Workload
from hbatune.probe.workloads import find_workload, load_workloads
from hbatune.shipped import find_shipped

RULES = find_shipped("rules")
LIBRARY = Library(RULES, site=Path("/nonexistent"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder of rules that has sources and no workload yet."""
    shutil.copy(RULES / "sources.toml", tmp_path)
    (tmp_path / "workloads").mkdir()
    return tmp_path


def refused(folder: Path, text: str) -> PolicyError:
    """Return why a workload of this text is refused."""
    (folder / "workloads" / "mine.toml").write_text(text)
    with pytest.raises(PolicyError) as caught:
        load_workloads(Library(folder, site=folder / "etc"))
    return caught.value


HEAD = 'title = "x"\nsources = ["D0-11"]\n'
MIX = '[[run]]\npattern = "randrw"\nblock_size = 4096\nreads = 70\n'
ZONES = "zones = [{ share = 50, bytes = 4096 }, { share = 50 }]\n"
RUN = '[[run]]\npattern = "randread"\nblock_size = 4096\n'


def test_reference_matches_document() -> None:
    [run] = find_workload("reference", LIBRARY).runs
    assert run == Workload(Pattern.RANDOM_READ, 4096, depth=32, jobs=8, ramp=5.0, runtime=60.0)


def test_sweeps_cover_all_values() -> None:
    depths = [run.depth for run in find_workload("depth-sweep", LIBRARY).runs]
    assert depths == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    blocks = [run.block_size for run in find_workload("block-sweep", LIBRARY).runs]
    assert blocks == [4096 << step for step in range(7)]
    small = [run.block_size for run in find_workload("block-sweep-small", LIBRARY).runs]
    assert small == [512 << step for step in range(8)]


def test_baselines_match_document() -> None:
    """D3-1: one I/O at a time, small and random, then large and sequential."""
    small, large = find_workload("qd1", LIBRARY).runs
    assert (small.pattern, small.block_size, small.depth) == (Pattern.RANDOM_READ, 4096, 1)
    assert (large.pattern, large.block_size, large.depth) == (Pattern.READ, 131_072, 1)


def test_matrix_matches_document() -> None:
    """D0-17: each depth with each block size, for 60 s."""
    runs = find_workload("lab-matrix", LIBRARY).runs
    loads = {(run.depth, run.block_size) for run in runs}
    blocks = (4096, 8192, 65_536, 131_072)
    assert loads == {(1 << step, block) for step in range(9) for block in blocks}
    assert (len(runs), {run.runtime for run in runs}) == (36, {60.0})


def test_writing_workloads_are_marked() -> None:
    assert {workload.name for workload in load_workloads(LIBRARY).values() if workload.writes} == {
        *("four-corners", "interference", "mix-sweep", "qd1-writes", "oltp1", "oltp2", "oltp3"),
        *("oltp1-load", "oltp2-load", "oltp3-load", "block-sweep-writes"),
    }
    for pattern in (Pattern.RANDOM_WRITE, Pattern.WRITE, Pattern.RANDOM_MIX):
        assert Workload(pattern, reads=100).writes


def test_jobs_sweep_varies_depth() -> None:
    runs = find_workload("jobs-sweep", LIBRARY).runs
    assert [(run.jobs, run.depth) for run in runs] == [
        (jobs, depth) for jobs in (1, 2, 4, 8) for depth in (1, 2, 4, 8, 16, 32, 64)
    ]


def test_mixes_match_documents() -> None:
    assert [run.reads for run in find_workload("mix-sweep", LIBRARY).runs] == [100, 70, 50, 0]
    shapes = {name: find_workload(name, LIBRARY).runs[0] for name in ("oltp1", "oltp2")}
    assert [(run.reads, run.block_size) for run in shapes.values()] == [(60, 4096), (90, 8192)]


def test_oltp3_hit_rate_matches_document() -> None:
    [run] = find_workload("oltp3", LIBRARY).runs
    assert (run.reads, run.block_size, run.depth) == (70, 4096, 24)
    # Of the reads 50 % are hits, of the writes 34 %, and 33 % go to blocks just read (D4-7).
    hits = 0.7 * 50 + 0.3 * (33 + 34)
    assert [zone.share for zone in run.zones] == [round(hits), 100 - round(hits)]


def test_mix_loads_rise_with_depth() -> None:
    for name in ("oltp1", "oltp2", "oltp3"):
        [run] = find_workload(name, LIBRARY).runs
        load = find_workload(f"{name}-load", LIBRARY).runs
        assert [load_run.depth for load_run in load] == [1, 2, 4, 8, 16, 32, 64, 128]
        shapes = {(load_run.reads, load_run.block_size, load_run.zones) for load_run in load}
        assert shapes == {(run.reads, run.block_size, run.zones)}


def test_written_and_sequential_workloads_exist() -> None:
    written = [run.pattern for run in find_workload("qd1-writes", LIBRARY).runs]
    assert written == [Pattern.RANDOM_WRITE, Pattern.WRITE]
    assert {run.depth for run in find_workload("qd1-writes", LIBRARY).runs} == {1}
    swept = find_workload("block-sweep-sequential", LIBRARY).runs
    assert [run.block_size for run in swept] == [4096 << step for step in range(9)]
    assert {run.pattern for run in swept} == {Pattern.READ}


def test_queue_depth_sweep_varies_load() -> None:
    runs = find_workload("queue-depth", LIBRARY).runs
    assert list(dict.fromkeys(run.queue_depth for run in runs)) == [8, 16, 32, 64, 128]
    assert {run.block_size for run in runs} == {8192}
    assert [run.depth for run in runs[:8]] == [1, 2, 4, 8, 16, 32, 64, 128]


def site(tmp_path: Path, name: str, text: str) -> Library:
    """Return the library of a site with one workload of its own."""
    path = tmp_path / "etc" / "workloads" / f"{name}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return Library(RULES, site=tmp_path / "etc")


ORDERS = """\
title = "what our orders do at noon"
sources = ["site: measured on 3 May"]

[[run]]
pattern = "randrw"
block_size = 8192
reads = 80
rate = [500, 1000, 2000]
"""


def test_site_adds_workloads(tmp_path: Path) -> None:
    library = site(tmp_path, "orders", ORDERS)
    orders = find_workload("orders", library)
    assert orders.sources == ("site: measured on 3 May",)
    assert [run.rate for run in orders.runs] == [500, 1000, 2000]
    assert {run.depth for run in orders.runs} == {256}, "so many may wait"
    assert orders.runs[0].job_rates == (400, 100)
    assert find_workload("oltp1", library) == find_workload("oltp1", LIBRARY)


def test_site_workload_overrides_shipped(tmp_path: Path) -> None:
    library = site(tmp_path, "qd1", ORDERS)
    assert load_workloads(library)["qd1"].title == "what our orders do at noon"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a b", ORDERS, "a name that no workload can have"),
        ("mine", ORDERS.replace("500", "0"), "rate"),
        ("mine", ORDERS.replace("site: measured", "measured"), "key `sources`"),
    ],
)
def test_site_mistake_is_reported(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        load_workloads(site(tmp_path, name, text))


def test_rate_splits_over_jobs() -> None:
    assert Workload(rate=1000, jobs=4).job_rates == (250,)
    assert Workload(Pattern.RANDOM_MIX, rate=1000, jobs=2, reads=70).job_rates == (350, 150)
    assert Workload(Pattern.RANDOM_MIX, rate=1, reads=100).job_rates == (1, 1), "0 is no limit"
    assert Workload().job_rates == ()


def test_unknown_workload_suggests_nearest() -> None:
    with pytest.raises(PolicyError, match="no workload") as caught:
        find_workload("referense", LIBRARY)
    assert caught.value.hint == 'did you mean "reference"?'


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (HEAD + RUN + "deepth = 3\n", "deepth"),
        (HEAD + RUN + "depth = 0\n", "depth"),
        (HEAD + RUN + "depth = []\n", "depth"),
        (HEAD + RUN.replace("randread", "trim"), "pattern"),
        (HEAD + RUN + "reads = 101\n", "reads"),
        (HEAD + RUN.replace("4096", "1000"), "block_size"),
        (HEAD, "run"),
        ('title = "x"\nsources = ["D9-9"]\n' + RUN, "line 2: key `sources`"),
        (HEAD + RUN.replace("randread", "read") + ZONES, "random"),
        (HEAD + MIX + ZONES.replace("50 }]", "40 }]"), "add up to 100"),
        (HEAD + MIX + ZONES.replace("{ share = 50 }", "{ share = 50, bytes = 4096 }"), "the rest"),
    ],
)
def test_workload_error_names_file(folder: Path, text: str, key: str) -> None:
    refusal = refused(folder, text)
    assert key in refusal.message
    assert "mine.toml: " in refusal.message


def test_interference_pairs_reader_with_writer() -> None:
    alone, beside = find_workload("interference", LIBRARY).runs
    assert (alone.writes, beside.writes) == (False, True)
    assert replace(beside, writer=None) == alone


def test_invalid_bulk_writer_is_refused(folder: Path) -> None:
    error = refused(folder, HEAD + RUN + "writer = { block_size = 1000 }\n")
    assert "from 4096" in str(error)
    error = refused(folder, HEAD + RUN + "writer = { dept = 3 }\n")
    assert "dept" in str(error)
