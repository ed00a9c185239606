"""240 SAS disks behind a 9600, whose 128 hardware queues share one tag set: planned and applied."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.hosts import hbas
from tests.hosts.namespace import OWN_CONFIGURATION, run
from tests.hosts.parts import sas
from tests.hosts.tree import Described, Disk

LUNS, QUEUES = 240, 128

OWN_STATE = (
    "sh",
    "-c",
    'mount -t tmpfs tmpfs /var/lib && mount -t tmpfs tmpfs /run && exec "$@"',
    "sh",
)
"""Words to put before a command that writes: what it remembers is the namespace's own."""

_RUN = "import json, sys; from hbatune.cli import main; print(json.dumps(main(sys.argv[1:])))"


def shelf() -> Described:
    """The card of D0 with ten shelves of SSDs; depth 32 is the driver's where firmware says 0."""
    function = hbas.mpi3mr().functions[0]
    luns = tuple(
        replace(
            sas(0, number, Disk(f"sd{_letters(number)}", tags=8000, hw_queues=1), depth="32"),
            wwid=f"naa.5000c500{number:08x}",
        )
        for number in range(LUNS)
    )
    host = replace(function.hosts[0], hw_queues=QUEUES, luns=luns)
    return Described((replace(function, hosts=(host,)),))


def _letters(number: int) -> str:
    return f"{chr(97 + number // 26)}{chr(97 + number % 26)}"


def hbatune(root: Path, *words: str) -> tuple[int, Any]:
    command = [*OWN_CONFIGURATION, *OWN_STATE, sys.executable, "-c", _RUN, *words, "--json"]
    document, _, code = run(root, command).decode().rstrip("\n").rpartition("\n")
    return int(code), json.loads(document)


def test_list_fits_on_screen(built: Callable[[Described], Path]) -> None:
    code = "import sys; from hbatune.cli import main; main(sys.argv[1:])"
    command = [*OWN_CONFIGURATION, *OWN_STATE, sys.executable, "-c", code, "list"]
    text = run(built(shelf()), command).decode()
    assert len(text.splitlines()) <= 40
    [group] = [line.split() for line in text.splitlines() if "(240)" in line]
    assert group[0] == "240"
    assert "32" in group, "the queue depth"


def test_shared_tag_luns_are_applied(built: Callable[[Described], Path]) -> None:
    root = built(shelf())
    code, done = hbatune(root, "apply", "--profile", "oltp", "--no-probe")
    assert code == 0
    outcomes = {(row["setting"], row["outcome"]) for row in done["rows"] if row["outcome"]}
    assert outcomes == {
        ("scheduler", "kept"),
        ("queue_depth", "written"),
        ("nr_requests", "written"),
        ("rq_affinity", "written"),
    }
    written = [row for row in done["rows"] if row["outcome"] == "written"]
    assert len(written) == 3 * LUNS
    disks = list((root / "sys" / "class" / "block").iterdir())
    values = {
        disk.joinpath(path).read_text().strip()
        for disk in disks
        for path in ("queue/nr_requests", "device/queue_depth", "queue/rq_affinity")
    }
    assert values == {"2048", "64", "2"}
    # One tag set, one allocation a LUN, which the scheduler has made already.
    assert done["summary"]["memory"] == 0
