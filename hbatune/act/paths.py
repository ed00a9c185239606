"""Paths of the files that hbatune keeps for itself or writes for other programs.

/run is lost at a reboot, with everything that is valid for only one boot.
"""

from pathlib import Path

from msgspec import Struct, field

RUN = Path("/run/hbatune")
STATE = Path("/var/lib/hbatune")

LOCK = RUN / "lock"
LOCK_SPARE = STATE / "lock"
DAEMON_LOCK = RUN / "daemon.lock"
DAEMON_LOCK_SPARE = STATE / "daemon.lock"
CLAIMS = RUN / "claims"
HOLDS = RUN / "held"
STATUS = RUN / "status.json"
LOCKED = RUN / "locked.json"
LATENCY = RUN / "latency.json"
SPENT = RUN / "spent.json"
SEEN = RUN / "seen"
# Written by the script of a package that replaces hbatune: a daemon that is stopped while that
# script runs is started again immediately. It contains the script's pid and start time, since a
# killed script leaves the file behind.
REPLACING = RUN / "replacing"
UNITS = Path("/etc/systemd/system")
# 89: after 60-persistent-storage.rules, the distributions' schedulers (60-block-scheduler.rules,
# 60-io-scheduler.rules) and multipath's verdict (60- or 62-multipath.rules). Before 90- and 99-,
# used by administrators, whose rules win.
UDEV_RULES = Path("/etc/udev/rules.d/89-hbatune.rules")
MODPROBE = Path("/etc/modprobe.d/hbatune.conf")
# The rollback record, permanent and for this boot: a file for each rollback. The compiled udev
# rules cannot list a directory and test for the marks. Earlier versions kept single targets in one
# list.
ROLLBACKS = STATE / "rollbacks"
ROLLBACKS_NOW = RUN / "rollbacks"
HANDS_OFF = STATE / "hands-off"
HANDS_OFF_NOW = RUN / "hands-off"
HANDS_OFF_TARGETS = STATE / "hands-off.json"
JOURNAL = STATE / "journal.json"  # with journal.log, and its trace RUN / "journal.sequence"
HISTORY = STATE / "history.json"
COUNTERS = STATE / "counters.json"
MANIFEST = STATE / "installed.json"

IRQS = RUN / "irqs"
IRQ_POLICY = STATE / "irqbalance-policy"  # /run is often mounted noexec


class Paths(Struct, frozen=True, kw_only=True):
    """The files that an operation reads and writes, as one value, fixed at creation.

    Paths that are not given are this module's at that time: tests change them.
    """

    run: Path = field(default_factory=lambda: RUN)
    state: Path = field(default_factory=lambda: STATE)
    daemon_lock: Path = field(default_factory=lambda: DAEMON_LOCK)
    daemon_lock_spare: Path = field(default_factory=lambda: DAEMON_LOCK_SPARE)
    claims: Path = field(default_factory=lambda: CLAIMS)
    holds: Path = field(default_factory=lambda: HOLDS)
    locked: Path = field(default_factory=lambda: LOCKED)
    seen: Path = field(default_factory=lambda: SEEN)
    replacing: Path = field(default_factory=lambda: REPLACING)
    units: Path = field(default_factory=lambda: UNITS)
    udev_rules: Path = field(default_factory=lambda: UDEV_RULES)
    modprobe: Path = field(default_factory=lambda: MODPROBE)
    journal: Path = field(default_factory=lambda: JOURNAL)
    history: Path = field(default_factory=lambda: HISTORY)
    counters: Path = field(default_factory=lambda: COUNTERS)
    manifest: Path = field(default_factory=lambda: MANIFEST)
    spent: Path = field(default_factory=lambda: SPENT)
    rollbacks: Path = field(default_factory=lambda: ROLLBACKS)
    rollbacks_now: Path = field(default_factory=lambda: ROLLBACKS_NOW)
    hands_off: Path = field(default_factory=lambda: HANDS_OFF)
    hands_off_now: Path = field(default_factory=lambda: HANDS_OFF_NOW)
    hands_off_targets: Path = field(default_factory=lambda: HANDS_OFF_TARGETS)
    irqs: Path = field(default_factory=lambda: IRQS)
    irq_policy: Path = field(default_factory=lambda: IRQ_POLICY)
