"""Paths of the files that hbatune keeps for itself or writes for other programs.

/run is lost at a reboot, with everything that is valid for only one boot.
"""

from pathlib import Path

RUN = Path("/run/hbatune")
STATE = Path("/var/lib/hbatune")

LOCK = RUN / "lock"
LOCK_SPARE = STATE / "lock"
DAEMON_LOCK = RUN / "daemon.lock"
DAEMON_LOCK_SPARE = STATE / "daemon.lock"
TRACE_LOCK = RUN / "trace.lock"
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
# The program of the rules: /etc is mounted when udev starts, /var perhaps later.
UDEV_WRITER = Path("/etc/udev/hbatune-write.sh")
MODPROBE = Path("/etc/modprobe.d/hbatune.conf")
# The rollback record, permanent and for this boot: a file for each rollback. The compiled udev
# rules cannot list a directory and test for the marks.
ROLLBACKS = STATE / "rollbacks"
ROLLBACKS_NOW = RUN / "rollbacks"
HANDS_OFF = STATE / "hands-off"
HANDS_OFF_NOW = RUN / "hands-off"
JOURNAL = STATE / "journal.json"  # with journal.log, and its trace RUN / "journal.sequence"
HISTORY = STATE / "history.json"
COUNTERS = STATE / "counters.json"
MANIFEST = STATE / "installed.json"

IRQS = RUN / "irqs"
IRQ_POLICY = STATE / "irqbalance-policy"  # /run is often mounted noexec


class Paths:
    """The files that an operation reads and writes, as one value, fixed at creation.

    They are this module's at that time: tests change them. A plain class, since `hbatune status`
    loads neither msgspec nor typing.
    """

    def __init__(self) -> None:
        self.run = RUN
        self.state = STATE
        self.daemon_lock = DAEMON_LOCK
        self.daemon_lock_spare = DAEMON_LOCK_SPARE
        self.claims = CLAIMS
        self.holds = HOLDS
        self.locked = LOCKED
        self.seen = SEEN
        self.replacing = REPLACING
        self.units = UNITS
        self.udev_rules = UDEV_RULES
        self.udev_writer = UDEV_WRITER
        self.modprobe = MODPROBE
        self.journal = JOURNAL
        self.history = HISTORY
        self.counters = COUNTERS
        self.manifest = MANIFEST
        self.spent = SPENT
        self.rollbacks = ROLLBACKS
        self.rollbacks_now = ROLLBACKS_NOW
        self.hands_off = HANDS_OFF
        self.hands_off_now = HANDS_OFF_NOW
        self.irqs = IRQS
        self.irq_policy = IRQ_POLICY

    def __setattr__(self, name: str, value: object) -> None:
        if hasattr(self, name):
            raise AttributeError(f"{name} is fixed")
        super().__setattr__(name, value)
