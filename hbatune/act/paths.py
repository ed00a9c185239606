"""Where hbatune keeps its own state, and what it writes down for others."""

from pathlib import Path

RUN = Path("/run/hbatune")
STATE = Path("/var/lib/hbatune")

LOCK = RUN / "lock"
CLAIMS = RUN / "writers"
HOLDS = RUN / "held"
LOCKED = RUN / "locked.json"
LATENCY = RUN / "latency.json"
MODPROBE = Path("/etc/modprobe.d/hbatune.conf")
JOURNAL = STATE / "journal.json"
HISTORY = STATE / "history.json"
COUNTERS = STATE / "counters.json"

IRQS = RUN / "irqs"
IRQ_POLICY = STATE / "irqbalance-policy"  # /run is often mounted noexec
