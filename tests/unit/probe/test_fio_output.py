import json
from pathlib import Path
from typing import Any

import pytest

from hbatune.probe.fio import parse_figures
from hbatune.probe.result import (
    REPLAY_GRACE_S,
    Failed,
    Failure,
    Figures,
    TracePart,
    Workload,
)

RECORDED = Path(__file__).parent / "recorded"
WORKLOAD = Workload(runtime=0.6)


def recorded(jobs: int) -> str:
    """Return what fio 3.33 said of a real run with so many jobs."""
    return (RECORDED / f"fio-3.33-{jobs}-jobs.json").read_text()


def measured(output: str, runtime: float = 0.6) -> Figures:
    """Return the figures in fio's output and assert that it has some."""
    parsed = parse_figures("sda", output, Workload(runtime=runtime))
    assert isinstance(parsed, Figures)
    return parsed


def read_of(output: str, job: int = 0) -> dict[str, Any]:
    """Return the read part of one job in fio's output."""
    read_part: dict[str, Any] = json.loads(output)["jobs"][job]["read"]
    return read_part


def test_figures_match_fio_output() -> None:
    read_part = read_of(recorded(1))
    theirs = read_part["lat_ns"]["percentile"]
    ours = measured(recorded(1))
    assert ours.iops == pytest.approx(read_part["iops"], rel=0.002)
    assert ours.mean_us * 1000 == pytest.approx(read_part["lat_ns"]["mean"])
    assert (ours.p50_us, ours.p95_us, ours.p99_us, ours.p999_us) == (
        theirs["50.000000"] / 1000,
        theirs["95.000000"] / 1000,
        theirs["99.000000"] / 1000,
        theirs["99.900000"] / 1000,
    )
    assert ours.bandwidth == pytest.approx(read_part["bw_bytes"], rel=0.002)
    assert (ours.ios, ours.runtime) == (read_part["total_ios"], WORKLOAD.runtime)


def test_late_completions_are_excluded() -> None:
    """As fio 3.33 told of 128 reads of a disk that does 385 a second, in 4 s."""
    late = {"333000000": 1538, "579000000": 127}
    late_job = job(ios=1665, counted=1538, runtime=4325, mean=351_760_000, bins=late)
    alone = measured(document(late_job), 4.0)
    assert alone.iops == pytest.approx(384.5, abs=0.1)
    in_time = job(ios=1538, runtime=4001, mean=333_000_000, bins={"333000000": 1538})
    in_time["read"]["io_bytes"] -= 17 * 4096  # a status reads it earlier than the number of I/Os
    ours = measured(f"{document(in_time)}\n{document(late_job)}", 4.0)
    assert ours.iops == pytest.approx(384.4, abs=0.1)
    assert ours.bandwidth == pytest.approx(4096 * ours.iops)
    assert (ours.p999_us, ours.mean_us) == (333_000, 333_000)
    assert ours.concurrency == pytest.approx(128, rel=0.001)


def replayed(name: str, rate: float) -> tuple[Figures, dict[str, Any], float]:
    """Return the figures of a recorded replay of 1 s, fio's own, and the seconds of its end job."""
    output = (RECORDED / f"fio-3.33-{name}.json").read_text()
    part = TracePart("/disk.trace", rate=rate, unit=4096, unwritten=0.0, lost=0.0)
    figures = parse_figures("sda", output, Workload(runtime=1.0, trace=part))
    assert isinstance(figures, Figures)
    replay, end = json.loads(output)["jobs"]
    return figures, replay["read"], end["job_runtime"] / 1000


def test_replay_excludes_lead_in() -> None:
    ours, theirs, end_s = replayed("replay", 400.0)
    assert theirs["total_ios"] == 400
    assert (ours.ios, ours.iops, ours.runtime) == (400, 400.0, 1.0)
    assert end_s > 1.5, "fio's own time includes the lead-in"
    assert ours.bandwidth == theirs["io_bytes"]
    assert ours.mean_us * 1000 == pytest.approx(theirs["lat_ns"]["mean"])
    assert ours.p99_us * 1000 == theirs["lat_ns"]["percentile"]["99.000000"]
    assert len(ours.job_iops) == len(ours.windows) == 1


def test_late_ios_extend_replay() -> None:
    """A replay that is late uses the grace, and the I/Os in flight after it count, too."""
    ours, theirs, end_s = replayed("late-replay", 3000.0)
    late_s = theirs["runtime"] / 1000 - end_s
    assert late_s > 0.02
    assert ours.ios == theirs["total_ios"] < 2000
    assert ours.runtime == pytest.approx(1 + REPLAY_GRACE_S + late_s)
    assert ours.iops == pytest.approx(ours.ios / ours.runtime)
    assert ours.bandwidth * ours.runtime == pytest.approx(theirs["io_bytes"])


def test_job_figures_sum_to_total() -> None:
    first, second = read_of(recorded(2), 0), read_of(recorded(2), 1)
    ours = measured(recorded(2))
    assert ours.job_iops == pytest.approx((first["iops"], second["iops"]), rel=0.002)
    assert ours.iops == pytest.approx(sum(ours.job_iops))
    assert ours.ios == first["total_ios"] + second["total_ios"]
    means = [first["lat_ns"]["mean"], second["lat_ns"]["mean"]]
    assert min(means) <= ours.mean_us * 1000 <= max(means)


def test_slow_job_shapes_merged_tail() -> None:
    output = document(
        job(ios=990, mean=100_000, bins={"100000": 990}),
        job(ios=10, mean=9_000_000, bins={"9000000": 10}),
    )
    ours = measured(output)
    assert (ours.p50_us, ours.p99_us, ours.p999_us) == (100, 100, 9000)
    assert ours.mean_us == pytest.approx(189)  # weighted by I/Os, not by jobs


def test_concurrency_equals_issued_depth() -> None:
    assert measured(recorded(1)).concurrency == pytest.approx(24, rel=0.02)
    assert measured(recorded(2)).concurrency == pytest.approx(48, rel=0.02)


def test_cpu_time_covers_jobs() -> None:
    # 30 % of 2 s and 10 % of 2 s are 800 ms for 4000 I/Os
    busy, lazy = job(ios=1000, usr=10.0, sys=20.0), job(ios=3000, usr=5.0, sys=5.0)
    assert measured(document(busy, lazy)).cpu_us_per_io == pytest.approx(200)


def test_surrounding_text_is_skipped() -> None:
    noisy = "note: both iodepth >= 1 and {something}\n" + recorded(1) + "fio: a last word\n"
    assert measured(noisy) == measured(recorded(1))


@pytest.mark.parametrize(
    "output",
    [
        "",
        "Segmentation fault",
        "{",
        "{}",
        '{"jobs": 3}',
        '{"jobs": [{"error": "none"}]}',
        "[1, 2]",
        "{'jobs': []}",
    ],
)
def test_nonsense_output_is_failure(output: str) -> None:
    parsed = parse_figures("sda", output, WORKLOAD)
    assert isinstance(parsed, Failed)
    assert parsed.reason is Failure.GARBAGE


def test_truncated_output_is_failure() -> None:
    output = recorded(1).rstrip()
    for end in range(0, len(output), 97):
        assert isinstance(parse_figures("sda", output[:end], WORKLOAD), Failed)


def test_broken_last_document_is_failure() -> None:
    status, final = document(job(runtime=1900)), document(job())
    parsed = parse_figures("sda", f"fio: a warning\n{status}\n{final[:-20]}", Workload(runtime=2.0))
    assert isinstance(parsed, Failed)
    assert parsed.reason is Failure.GARBAGE
    assert parsed.text is not None
    assert "last document is broken" in parsed.text
    assert "a warning" not in parsed.text


def test_broken_status_is_skipped() -> None:
    status, final = document(job(runtime=1000)), document(job())
    assert measured(f"{status[:-20]}\n{final}", 2.0).runtime == 2.0


def test_missing_histogram_is_failure() -> None:
    parsed = parse_figures("sda", document(job(bins={})), WORKLOAD)
    assert isinstance(parsed, Failed)
    assert parsed.reason is Failure.GARBAGE


def test_zero_runtime_is_failure() -> None:
    parsed = parse_figures("sda", document(job(runtime=0)), WORKLOAD)
    assert isinstance(parsed, Failed)
    assert parsed.reason is Failure.GARBAGE


def test_fio_error_carries_errno() -> None:
    parsed = parse_figures("sda", document(job(), job(error=5)), WORKLOAD)
    assert parsed == Failed("sda", Failure.IO, errno=5)


def test_zero_completions_yield_no_figures() -> None:
    parsed = parse_figures("sda", document(job(ios=0, bins={})), WORKLOAD)
    assert parsed == Failed("sda", Failure.NO_IO)


def job(
    *,
    ios: int = 1000,
    counted: int | None = None,
    runtime: int = 2000,
    mean: float = 100_000.0,
    usr: float = 1.0,
    sys: float = 1.0,
    error: int = 0,
    bins: dict[str, int] | None = None,
) -> dict[str, Any]:
    """Return a job as fio writes it; it ``counted`` fewer I/Os than have latencies."""
    total = ios if counted is None else counted
    latency = {"mean": mean, "N": ios, "bins": {"100000": ios} if bins is None else bins}
    return {
        "jobname": "probe",
        "error": error,
        "job_runtime": 2000,
        "usr_cpu": usr,
        "sys_cpu": sys,
        "read": {
            "runtime": runtime,
            "total_ios": total,
            "io_bytes": total * 4096,
            "lat_ns": latency,
        },
    }


def document(*jobs: dict[str, Any]) -> str:
    """Return fio's JSON with these jobs."""
    return json.dumps({"fio version": "fio-3.33", "jobs": jobs})


def beside(**read: Any) -> dict[str, Any]:
    """Return the job of a bulk writer that writes as much as ``job`` reads."""
    reader = job(**read)
    return {
        **reader,
        "jobname": "beside",
        "read": job(ios=0, bins={})["read"],
        "write": reader["read"],
    }


def test_writer_is_excluded_from_figures() -> None:
    writer = beside(ios=500, mean=80_000_000, bins={"80000000": 500})
    alone, ours = measured(document(job())), measured(document(job(), writer))
    assert ours.written_beside == 500 * 4096 / 2
    assert alone.written_beside is None
    assert (ours.iops, ours.p99_us, ours.job_iops) == (alone.iops, alone.p99_us, alone.job_iops)


def test_starved_reader_yields_no_figures() -> None:
    parsed = parse_figures("sda", document(job(ios=0, bins={}), beside()), WORKLOAD)
    assert isinstance(parsed, Failed)
    assert parsed.reason is Failure.NO_IO
