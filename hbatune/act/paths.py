"""Paths of the files that hbatune keeps for itself or writes for other programs.

/run is lost at a reboot, with everything that is valid for only one boot.
"""

from pathlib import Path


class Paths:
    """The files that an operation reads and writes, as one value; tests change the attributes.

    A plain class, since `hbatune status` loads neither msgspec nor typing.
    """

    run = Path("/run/hbatune")
    state = Path("/var/lib/hbatune")
    lock = run / "lock"
    lock_spare = state / "lock"
    daemon_lock = run / "daemon.lock"
    daemon_lock_spare = state / "daemon.lock"
    trace_lock = run / "trace.lock"
    claims = run / "claims"
    holds = run / "held"
    status = run / "status.json"
    locked = run / "locked.json"
    latency = run / "latency.json"
    spent = run / "spent.json"
    seen = run / "seen"
    pages = run / "pages"
    # Written by the script of a package that replaces hbatune: a daemon that is stopped while that
    # script runs is started again immediately. It contains the script's pid and start time, since a
    # killed script leaves the file behind.
    replacing = run / "replacing"
    units = Path("/etc/systemd/system")
    # 89: after 60-persistent-storage.rules, the distributions' schedulers
    # (60-block-scheduler.rules, 60-io-scheduler.rules) and multipath's verdict (60- or
    # 62-multipath.rules). Before 90- and 99-, used by administrators, whose rules win.
    udev_rules = Path("/etc/udev/rules.d/89-hbatune.rules")
    # The program of the rules: /etc is mounted when udev starts, /var perhaps later.
    udev_writer = Path("/etc/udev/hbatune-write.sh")
    modprobe = Path("/etc/modprobe.d/hbatune.conf")
    # The rollback record, permanent and for this boot: a file for each rollback. The compiled udev
    # rules cannot list a directory and test for the marks.
    rollbacks = state / "rollbacks"
    rollbacks_now = run / "rollbacks"
    hands_off = state / "hands-off"
    hands_off_now = run / "hands-off"
    journal = state / "journal.json"  # with journal.log, and its trace run / "journal.sequence"
    history = state / "history.json"
    counters = state / "counters.json"
    manifest = state / "installed.json"
    irqs = run / "irqs"
    irq_policy = state / "irqbalance-policy"  # /run is often mounted noexec
