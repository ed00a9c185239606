"""Where hbatune keeps its own state and the files that it writes for other programs.

/run is gone with the boot, and with it everything that is true only of one boot.
"""

from pathlib import Path

from msgspec import Struct, field

RUN = Path("/run/hbatune")
STATE = Path("/var/lib/hbatune")

LOCK = RUN / "lock"
DAEMON = RUN / "daemon.lock"
CLAIMS = RUN / "writers"
HOLDS = RUN / "held"
STATUS = RUN / "status.json"
LOCKED = RUN / "locked.json"
LATENCY = RUN / "latency.json"
SPENT = RUN / "spent.json"
SEEN = RUN / "seen"
UNITS = Path("/etc/systemd/system")
# 89: after 60-persistent-storage.rules, the distributions' schedulers (60-block-scheduler.rules,
# 60-io-scheduler.rules) and multipath's verdict (60- or 62-multipath.rules); before 90- and 99-,
# where administrators put theirs, which win.
UDEV_RULES = Path("/etc/udev/rules.d/89-hbatune.rules")
MODPROBE = Path("/etc/modprobe.d/hbatune.conf")
# The record of rollbacks: for good, for this boot, and for single targets. The compiled udev rules
# test for the first two, so these are files of their own.
HANDS_OFF = STATE / "hands-off"
HANDS_OFF_NOW = RUN / "hands-off"
HANDS_OFF_TARGETS = STATE / "hands-off.json"
JOURNAL = STATE / "journal.json"
HISTORY = STATE / "history.json"
COUNTERS = STATE / "counters.json"
MANIFEST = STATE / "installed.json"

IRQS = RUN / "irqs"
IRQ_POLICY = STATE / "irqbalance-policy"  # /run is often mounted noexec


class Paths(Struct, frozen=True, kw_only=True):
    """The files that an operation reads and writes, as one value, fixed when it is made."""

    # Factories, so that the module's paths are looked up when a value is made: tests move them.
    run: Path = field(default_factory=lambda: RUN)
    state: Path = field(default_factory=lambda: STATE)
    claims: Path = field(default_factory=lambda: CLAIMS)
    holds: Path = field(default_factory=lambda: HOLDS)
    locked: Path = field(default_factory=lambda: LOCKED)
    seen: Path = field(default_factory=lambda: SEEN)
    units: Path = field(default_factory=lambda: UNITS)
    udev_rules: Path = field(default_factory=lambda: UDEV_RULES)
    modprobe: Path = field(default_factory=lambda: MODPROBE)
    journal: Path = field(default_factory=lambda: JOURNAL)
    history: Path = field(default_factory=lambda: HISTORY)
    counters: Path = field(default_factory=lambda: COUNTERS)
    manifest: Path = field(default_factory=lambda: MANIFEST)
    spent: Path = field(default_factory=lambda: SPENT)
    hands_off: Path = field(default_factory=lambda: HANDS_OFF)
    hands_off_now: Path = field(default_factory=lambda: HANDS_OFF_NOW)
    hands_off_targets: Path = field(default_factory=lambda: HANDS_OFF_TARGETS)
    irqs: Path = field(default_factory=lambda: IRQS)
    irq_policy: Path = field(default_factory=lambda: IRQ_POLICY)
