"""Where hbatune keeps its own state."""

from pathlib import Path

RUN = Path("/run/hbatune")
STATE = Path("/var/lib/hbatune")

LOCK = RUN / "lock"
CLAIMS = RUN / "writers"
JOURNAL = STATE / "journal.json"

IRQS = RUN / "irqs"
IRQ_POLICY = STATE / "irqbalance-policy"  # /run is often mounted noexec
