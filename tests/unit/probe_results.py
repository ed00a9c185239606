"""Figures and results of a probe."""

import msgspec

from hbatune.probe.result import Figures, ProbeResult, Workload

FIGURES = Figures(
    iops=60_000.0,
    bandwidth=245_760_000.0,
    mean_us=400.0,
    p50_us=380.0,
    p95_us=700.0,
    p99_us=900.0,
    p999_us=2000.0,
    cpu_us_per_io=7.5,
    ios=180_000,
    runtime=3.0,
    job_iops=(60_000.0,),
)


def result(target: str = "sda", **overrides: object) -> ProbeResult:
    """Return a probe that measured FIGURES, changed by ``overrides``."""
    figures = msgspec.structs.replace(FIGURES, **overrides)
    return ProbeResult(target, "wwn-1", Workload(), figures, "3.33", ())
