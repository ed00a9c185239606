"""Run in a described machine's namespace: one disk's event after another, and what each costs.

Arguments: how many events, of which the first tenth is not counted. Prints one JSON object: the CPU
seconds of each event over all processes that take part, the bytes of its report, and what the
process that makes the passes has in memory at the first and at the last.
"""

import json
import os
import select
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from hbatune.agent import orders, work
from hbatune.agent.child import IDLE_AFTER_S, Server
from hbatune.agent.events import DeviceEvent
from hbatune.agent.orders import Order, PassReason, PassReport, decode_report
from hbatune.policy.config import load_configuration
from hbatune.policy.vendors import load_chosen_profile

DISK = "sda"
WANTED = "2048"
NANO = 1e-9


def tree(pid: int) -> Iterator[int]:
    """Yield a process and those below it."""
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        for number in (task / "children").read_text().split():
            yield from tree(int(number))


def spent() -> float:
    """Return the CPU seconds of this process and of those below it (proc(5): schedstat)."""
    texts = (Path(f"/proc/{pid}/schedstat").read_text() for pid in tree(os.getpid()))
    return sum(int(text.split()[0]) for text in texts) * NANO


def memory(pid: int) -> dict[str, int]:
    """Return the KiB that a process has in memory: all of it, and its share of what is shared."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    sizes = {line.split(":")[0]: line.split()[1] for line in lines[1:]}
    return {name: int(sizes[name]) for name in ("Rss", "Pss")}


def request_pass(server: Server, order: Order) -> tuple[PassReport, int]:
    """Request a pass. Return its report and the size of the report in bytes."""
    server.ask(orders.encode(order))
    while True:
        select.select([server], [], [])
        sent = server.read()
        if sent is not None:
            report = decode_report(sent)
            assert report.error is None, report.error
            return report, len(sent)


def main(events: int) -> None:
    """Look at everything, and then at the disk, each time after its value was changed."""
    for folder in ("/etc/hbatune", "/var/lib/hbatune"):
        Path(folder).mkdir(exist_ok=True)
    Path("/etc/hbatune/hbatune.toml").write_text('profile = "oltp"\n[act]\nmemory_share = 1.0\n')
    config = load_configuration()
    profile = load_chosen_profile(None, config)
    passes = work.PassMaker(config, profile)
    server = Server(passes.make, on_idle=passes.rest)
    report, _ = request_pass(server, Order(PassReason.START))
    assert report.whole
    file = Path(f"/sys/class/block/{DISK}/queue/nr_requests")
    seconds, size, first = list[float](), 0, dict[str, int]()
    for number in range(events):
        file.write_text("100\n")
        before = spent()
        report, size = request_pass(server, Order(PassReason.EVENT, (DeviceEvent(DISK),)))
        assert not report.whole
        assert file.read_text().strip() == WANTED
        if number >= events // 10:
            seconds.append(spent() - before)
            first = first or memory(server.pid)
    time.sleep(IDLE_AFTER_S + 1)  # idle
    last = memory(server.pid)
    share = sum(memory(pid)["Pss"] for pid in tree(os.getpid()))
    server.kill()
    results = {"seconds": seconds, "report": size, "first": first, "last": last, "pss": share}
    print(json.dumps(results))


if __name__ == "__main__":
    main(int(sys.argv[1]))
