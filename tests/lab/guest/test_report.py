"""The report of a sweep whose knee is known in advance."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from hbatune.act.paths import Paths
from tests.lab.guest.command import hbatune
from tests.lab.guest.known import DEPTH, SERVICE_NS, deep

KERNELS = ("6.1",)


@pytest.mark.deadline(600)
def test_sweep_report_names_knee(scsi_debug: Callable[..., list[str]], tmp_path: Path) -> None:
    """scsi_debug serves each command in 20 ms and 64 of them at once: that is where the knee is.

    Where the emulated CPU is the limit before that, it is one depth earlier.
    """
    [disk] = scsi_debug(max_luns=1, delay=0, ndelay=SERVICE_NS)
    deep(disk)
    probed = hbatune("probe", "depth-sweep", "--runtime", "2", disk)
    assert probed.code == 0, probed.err
    page = tmp_path / "report.html"
    done = hbatune("report", str(page))
    assert done.code == 0, done.err
    html = page.read_text()
    assert f"{disk}: 4K random reads" in html, Paths.history.read_text()[-2000:]
    match = re.search(r"Past depth (\d+):", html)
    assert match, "no knee is named"
    assert int(match[1]) in (DEPTH // 2, DEPTH)
    assert "<script" not in html
