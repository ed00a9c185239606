"""The sweep of queue depths of document 002 on a real remote port, all its forty runs (D2-1)."""

from pathlib import Path

import pytest

from tests.lab.guest.command import hbatune
from tests.lab.guest.fibre import fabric
from tests.lab.guest.values import cat
from tests.soak.guest.results import save_results

KERNELS = ("6.1", "6.12")
MARGIN = 1.1
"""How far more may seem in flight than was issued: what is at an end of a run counts in full."""


@pytest.mark.deadline(3600)
def test_fibre_channel_sweep_bounds_inflight(tmp_path: Path) -> None:
    """How fast the emulated CPU serves both ends is no truth; what may be in flight is one."""
    with fabric(tmp_path, paths=1, luns=1, vendor="DGC", model="RAID 5") as array:
        [disk] = array.disks()
        initial_depth = cat(disk, "device/queue_depth")
        done = hbatune("probe", "queue-depth", "--runtime", "4", "--json", disk)
        assert done.code == 0, done.out + done.err
        assert cat(disk, "device/queue_depth") == initial_depth
    points = []
    for run in done.json["runs"]:
        workload, figures = run["workload"], run["outcome"]["figures"]
        settings = {entry["setting"]: entry["value"] for entry in run["outcome"]["settings"]}
        assert settings["queue_depth"] == workload["queue_depth"]
        waited, took = figures["mean_us"] / 1e6, figures["runtime"]
        in_flight = figures["iops"] * waited
        assert in_flight < (MARGIN + waited / took) * workload["depth"], workload
        points.append(
            {
                "queue_depth": workload["queue_depth"],
                "depth": workload["depth"],
                "iops": round(figures["iops"], 1),
                "in_flight": round(in_flight, 2),
                "p99_ms": round(figures["p99_us"] / 1000, 2),
            }
        )
    save_results(
        "the queue depth experiment over Fibre Channel", name="fibre_channel", points=points
    )
    assert len(points) == 40
