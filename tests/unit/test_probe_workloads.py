import shutil
from pathlib import Path

import pytest

from hbatune.policy.files import PolicyError
from hbatune.probe.model import Pattern, Workload
from hbatune.probe.workloads import load_workloads, workload
from hbatune.shipped import shipped

RULES = shipped("rules")


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
        load_workloads(folder)
    return caught.value


HEAD = 'title = "x"\nsources = ["D0-11"]\n'
MIX = '[[run]]\npattern = "randrw"\nblock_size = 4096\nreads = 70\n'
ZONES = (
    "[run.zones]\nread = [{ share = 50, bytes = 4096 }, { share = 50 }]\n"
    "write = [{ share = 100 }]\n"
)
RUN = '[[run]]\npattern = "randread"\nblock_size = 4096\n'


def test_the_reference_is_the_documents_job() -> None:
    [run] = workload("reference", RULES).runs
    assert run == Workload(Pattern.RANDOM_READ, 4096, depth=32, jobs=8, ramp=5.0, runtime=60.0)


def test_sweeps_have_a_run_for_each_value() -> None:
    depths = [run.depth for run in workload("depth-sweep", RULES).runs]
    assert depths == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    blocks = [run.block_size for run in workload("block-sweep", RULES).runs]
    assert blocks == [4096 << step for step in range(7)]
    small = [run.block_size for run in workload("block-sweep-small", RULES).runs]
    assert small == [512 << step for step in range(8)]


def test_what_writes_says_so() -> None:
    assert {each.name for each in load_workloads(RULES) if each.writes} == {
        *("four-corners", "mix-sweep", "oltp1", "oltp2", "oltp3"),
    }
    for pattern in (Pattern.RANDOM_WRITE, Pattern.WRITE, Pattern.RANDOM_MIX):
        assert Workload(pattern, reads=100).writes


def test_mixes_are_the_documents() -> None:
    assert [run.reads for run in workload("mix-sweep", RULES).runs] == [100, 70, 50, 0]
    shapes = {name: workload(name, RULES).runs[0] for name in ("oltp1", "oltp2")}
    assert [(run.reads, run.block_size) for run in shapes.values()] == [(60, 4096), (90, 8192)]


def test_oltp3_has_the_documents_hits() -> None:
    [run] = workload("oltp3", RULES).runs
    assert (run.reads, run.block_size, run.depth) == (70, 4096, 24)
    assert [zone.share for zone in run.read_zones] == [50, 50]
    assert [zone.share for zone in run.write_zones] == [33, 34, 33]
    # A third of the writes goes to what is read over and over.
    assert run.read_zones[0].bytes == run.write_zones[0].bytes


def test_the_queue_depth_is_swept_beside_the_workloads() -> None:
    runs = workload("queue-depth", RULES).runs
    assert list(dict.fromkeys(run.queue_depth for run in runs)) == [8, 16, 32, 64, 128]
    assert {run.block_size for run in runs} == {8192}
    assert [run.depth for run in runs[:8]] == [1, 2, 4, 8, 16, 32, 64, 128]


def test_an_unknown_name_is_told_with_the_nearest() -> None:
    with pytest.raises(PolicyError, match="no workload") as caught:
        workload("referense", RULES)
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
        ('title = "x"\nsources = ["D9-9"]\n' + RUN, "sources"),
        (HEAD + RUN + ZONES, "randrw"),
        (HEAD + MIX + ZONES.replace("50 }]", "40 }]"), "add up to 100"),
        (HEAD + MIX + ZONES.replace("{ share = 50 }", "{ share = 50, bytes = 4096 }"), "the rest"),
    ],
)
def test_a_mistake_is_refused_where_it_stands(folder: Path, text: str, key: str) -> None:
    found = refused(folder, text)
    assert key in found.message
    assert found.file is not None
    assert found.file.endswith("mine.toml")
