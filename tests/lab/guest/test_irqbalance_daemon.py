"""The daemon inside its unit proves which process is irqbalance, on a real kernel."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab.guest.command import configure, hbatune
from tests.lab.guest.irqbalance import banned_in_file, irqbalance, named_irqbalance, read_affinities
from tests.lab.guest.service import QUIET, Journal, running

KERNELS = ("6.12",)
TOPOLOGY = "probed"
SCRIPT = Path("/var/lib/hbatune/irqbalance-policy")
TRACING = Path("/sys/kernel/tracing")


@contextmanager
def hangups() -> Iterator[Callable[[], str]]:
    """Trace SIGHUP, and yield a function that returns the trace."""
    event, trace = TRACING / "events/signal/signal_generate", TRACING / "trace"
    trace.write_text("")
    (event / "filter").write_text(f"sig == {int(signal.SIGHUP)}")
    (event / "enable").write_text("1")
    try:
        yield trace.read_text
    finally:
        (event / "enable").write_text("0")
        (event / "filter").write_text("0")


def test_unit_daemon_obeys_only_service(tmp_path: Path) -> None:
    """Its capabilities and its mount namespace let it prove which process is irqbalance.

    They do not let it read the environment, so it takes the banned CPUs from Debian's file.
    """
    loop = tmp_path / "loop"
    loop.symlink_to(loop)

    def scan(journal: Journal, config: str = "") -> None:
        configure(f'profile = "oltp"\n{config}{QUIET}')
        journal.reload()

    with running(QUIET), named_irqbalance("-l", str(loop), banned="0"):
        rows = hbatune("diff", "--json").rows(setting="irq_affinity", state="ok")
        placed = {row["target"]: row["value"] for row in rows}
        assert "0" in placed.values()
        with (
            irqbalance("--interval=3600", f"--policyscript={SCRIPT}") as pid,
            Journal() as journal,
            hangups() as trace,
        ):
            excluded = min(placed)
            scan(journal, f'[site]\nexclude = ["{excluded}"]\n')
            assert f"comm=irqbalance pid={pid} " in trace()
            managed = {irq: cpus for irq, cpus in placed.items() if irq != excluded}
            assert read_affinities(managed) == managed
        with banned_in_file("0"), irqbalance("--interval=3600"), Journal() as journal:
            scan(journal)
            assert set(read_affinities(placed).values()) == {"1"}
