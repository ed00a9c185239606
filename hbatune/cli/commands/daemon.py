"""`hbatune daemon`: keep a profile applied, as a systemd service or in a terminal."""

from contextlib import suppress
from typing import TYPE_CHECKING

from hbatune.act.block_trace import LATENCY_EVENTS, BlockTrace
from hbatune.act.lock import Lock
from hbatune.act.paths import Paths
from hbatune.agent import service, status
from hbatune.agent.configuration import LastGoodConfiguration, Policy
from hbatune.agent.events import UdevMonitor
from hbatune.agent.loop import DaemonLoop
from hbatune.agent.monitor import MetricsMonitor
from hbatune.agent.writers import WriterWatch
from hbatune.cli import arguments, command
from hbatune.errors import LockRole
from hbatune.policy.config import load_configuration
from hbatune.policy.library import installed_library
from hbatune.policy.rules import Doubts
from hbatune.policy.vendors import load_chosen_profile
from hbatune.text.daemon_messages import JournalReporter
from hbatune.watch.latency import LatencySampler

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: "argparse.ArgumentParser") -> None:
    """Add nothing: the daemon is configured only in hbatune.toml."""


def run(args: "argparse.Namespace") -> int:
    """Run until a signal ends it; LockedError if another daemon runs."""
    arguments.require_root("daemon")
    # Not the lock of the runs: commands must be able to work while the daemon is idle.
    with Lock(Paths.daemon_lock, LockRole.DAEMON, spare=Paths.daemon_lock_spare):
        by = service.detect_manager()
        good = LastGoodConfiguration(installed_library().site, _load_policy)
        source = UdevMonitor(round(good.policy.config.daemon.buffer_mib * (1 << 20)))
        reporter = JournalReporter(by)
        command.watch_for_faults(["daemon"], reporter.failed)
        last = None
        with suppress(status.StatusError):  # without one, the daemon starts from nothing
            last = status.load_last_status(Paths.status)
        latencies = LatencySampler(BlockTrace("hbatune", LATENCY_EVENTS), Paths.latency)
        monitor = MetricsMonitor(latencies, () if last is None else last.alerts)
        # After a restart, alerts and retries continue and are not reported again.
        open = () if last is None else last.open
        save, writers = reporter.save, WriterWatch(open)
        DaemonLoop(source, good, by, reporter, save, monitor, writers, open=open).run()
    return 0


def _load_policy(doubts: Doubts) -> Policy:
    config = load_configuration()
    return Policy(config, load_chosen_profile(None, config, doubts) if config.profile else None)
