"""The rates of scsi_debug against what they must be: IOPS = depth / time (D2-1)."""

from collections.abc import Callable

import pytest

from tests.lab.guest.command import hbatune
from tests.lab.guest.known import DEPTH, SERVICE_NS, deep
from tests.lab.guest.values import put
from tests.soak.guest.results import save_results

KERNELS = ("6.1", "6.12")
MARGIN = 0.05
SECONDS = SERVICE_NS / 1e9


@pytest.mark.deadline(1800)
def test_iops_obey_depth_over_time(
    scsi_debug: Callable[..., list[str]],
) -> None:
    """Up to depth 64, of the device alone: nothing sorts its I/O, and next to nothing is merged."""
    [disk] = scsi_debug(max_luns=1, delay=0, ndelay=SERVICE_NS, virtual_gb=64)
    put(deep(disk), "queue/scheduler", "none")
    done = hbatune("probe", "queue-depth", "--runtime", "4", "--json", disk)
    assert done.code == 0, done.out + done.err
    points = []
    for run in done.json["runs"]:
        depth, queue = run["workload"]["depth"], run["workload"]["queue_depth"]
        figures = run["outcome"]["figures"]
        ideal = min(depth, queue) / SECONDS
        points.append(
            {
                "queue_depth": queue,
                "depth": depth,
                "iops": round(figures["iops"], 1),
                "ideal": ideal,
                "share": round(figures["iops"] / ideal, 4),
                "p99_ms": round(figures["p99_us"] / 1000, 2),
                "busy": figures["busy"],
            }
        )
    save_results("the queue depth experiment, 20 ms an I/O", name="truth", points=points)
    within = [point for point in points if min(point["depth"], point["queue_depth"]) <= DEPTH]
    off = [point for point in within if abs(point["share"] - 1) > MARGIN]
    assert not off, off
