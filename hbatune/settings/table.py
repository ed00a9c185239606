"""The one table of settings: where each lives, how it reads, in which order it is written.

Values are typed (an integer, or a name for the scheduler) and are compared as such. The order is
data: a scheduler switch resets nr_requests and throws the scheduler's own tunables away, and on
recent kernels every change of the queue's limits raises read_ahead_kb, so that comes last. The
order holds when values are put back, too.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

Value = int | str

SCHEDULER_TUNABLES = "queue/iosched/"
"""Where the scheduler in use keeps its own tunables; they come and go with it."""

MAX_HW_SECTORS = "queue/max_hw_sectors_kb"
"""The largest request that the adapter takes, in KiB; a fact, not a setting."""

SCHEDULERS = ("none", "mq-deadline", "kyber", "bfq")
MAX_SCHEDULER_REQUESTS = 2048
"""Most requests with a scheduler (block/blk-mq.h: MAX_SCHED_RQ); more is EINVAL."""
MIN_REQUESTS = 4
"""Fewer are silently made four (block/blk-sysfs.c: BLKDEV_MIN_RQ)."""
MAX_QUEUE_DEPTH = 4096
"""The SCSI midlayer's own ceiling (drivers/scsi/scsi.c: scsi_device_max_queue_depth)."""


@dataclass(frozen=True)
class Setting:
    """One named, typed thing that can be set on an endpoint.

    ``path`` is below the block device's sysfs directory. ``low`` and ``high`` are what the kernel
    takes on any device; the device at hand may allow less (``limits``), which is read from the
    files that it ``needs`` besides. ``resets`` names what else a write may change. ``source`` is
    where the kernel does it.
    """

    name: str
    path: str
    order: int
    summary: str
    source: str
    low: int = 0
    high: int | None = None
    names: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    resets: tuple[str, ...] = ()

    def parse(self, text: str) -> Value:
        """Return the typed value of the file's text; ValueError where it makes no sense."""
        if self.names:
            return selected(text)
        return int(text, 10)

    def allowed(self) -> str:
        """Say what a rule may ask for."""
        if self.names:
            return "one of " + ", ".join(self.names)
        if self.high is None:
            return f"an integer of at least {self.low}"
        return f"an integer from {self.low} to {self.high}"

    def check(self, value: object) -> str | None:
        """Return None for a value that a rule may ask for, else what is allowed."""
        if self.names:
            return None if value in self.names else self.allowed()
        if isinstance(value, bool) or not isinstance(value, int):
            return self.allowed()
        if value < self.low or (self.high is not None and value > self.high):
            return self.allowed()
        return None


def selected(text: str) -> str:
    """Return the name in brackets, or the only one where there are none.

    The order of the names and the blanks around them differ between kernels; a bio-based device
    reads a bare ``none`` (block/elevator.c: elv_iosched_show). ValueError for anything else.
    """
    words = text.split()
    marked = [word[1:-1] for word in words if word.startswith("[") and word.endswith("]")]
    if len(marked) == 1 and marked[0]:
        return marked[0]
    if len(words) == 1 and not marked:
        return words[0]
    raise ValueError(text)


def choices(text: str) -> tuple[str, ...]:
    """Return the schedulers that the file offers; none where it is not to be set at all."""
    if "[" not in text:
        return ()
    return tuple(word.strip("[]") for word in text.split())


_LIMITS = ("read_ahead_kb",)  # block/blk-settings.c: blk_apply_bdi_limits, since 6.11

SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting(
            "scheduler",
            "queue/scheduler",
            10,
            "how requests are ordered before they reach the adapter",
            "block/elevator.c: elv_iosched_store",
            names=SCHEDULERS,
            resets=("nr_requests", "wbt_lat_usec", SCHEDULER_TUNABLES),
        ),
        Setting(
            "queue_depth",
            "device/queue_depth",
            20,
            "commands a LUN may have in flight",
            "drivers/scsi/scsi_sysfs.c: sdev_store_queue_depth",
            low=1,
            high=MAX_QUEUE_DEPTH,
        ),
        Setting(
            "nr_requests",
            "queue/nr_requests",
            30,
            "requests that may wait in each hardware queue",
            "block/blk-sysfs.c: queue_requests_store",
            low=MIN_REQUESTS,
            high=MAX_SCHEDULER_REQUESTS,
            needs=("queue/scheduler",),
            resets=(SCHEDULER_TUNABLES,),  # mq-deadline's async_depth follows it
        ),
        Setting(
            "rq_affinity",
            "queue/rq_affinity",
            60,
            "where a request completes: 0 anywhere, 1 near the submitter, 2 on its CPU",
            "block/blk-sysfs.c: queue_rq_affinity_store",
            high=2,
        ),
        Setting(
            "nomerges",
            "queue/nomerges",
            60,
            "merging of requests: 0 all, 1 simple ones only, 2 none",
            "block/blk-sysfs.c: queue_nomerges_store",
            high=2,
        ),
        Setting(
            "rotational",
            "queue/rotational",
            60,
            "whether the kernel takes it for a spinning disk",
            "block/blk-sysfs.c",
            high=1,
            resets=("wbt_lat_usec", *_LIMITS),
        ),
        Setting(
            "add_random",
            "queue/add_random",
            60,
            "whether its I/O feeds the entropy pool",
            "block/blk-sysfs.c",
            high=1,
            resets=_LIMITS,
        ),
        Setting(
            "iostats",
            "queue/iostats",
            60,
            "whether I/O is counted in diskstats",
            "block/blk-sysfs.c",
            high=1,
            resets=_LIMITS,
        ),
        Setting(
            "max_sectors_kb",
            "queue/max_sectors_kb",
            70,
            "largest request, in KiB",
            "block/blk-sysfs.c: queue_max_sectors_store",
            low=4,
            needs=(MAX_HW_SECTORS,),
            resets=_LIMITS,
        ),
        Setting(
            "wbt_lat_usec",
            "queue/wbt_lat_usec",
            80,
            "read latency that buffered writeback is throttled for, in µs; 0 is off",
            "block/blk-sysfs.c: queue_wb_lat_store",
        ),
        Setting(
            "read_ahead_kb",
            "queue/read_ahead_kb",
            90,
            "how far sequential reads are read ahead, in KiB",
            "block/blk-sysfs.c: queue_ra_store",
        ),
    )
}


def _tunable_value(text: str) -> Value:
    try:
        return int(text, 10)
    except ValueError:
        return text


@dataclass(frozen=True)
class _Tunable(Setting):
    """A tunable of the scheduler in use; kept and put back, never in a rule."""

    def parse(self, text: str) -> Value:
        return _tunable_value(text)


def setting(name: str) -> Setting:
    """Return the setting of that name, or the scheduler's tunable at that path.

    KeyError for a name that is neither.
    """
    if name.startswith(SCHEDULER_TUNABLES):
        return _Tunable(name, name, 40, "a tunable of the scheduler", "block/elevator.c")
    return SETTINGS[name]


def attributes(names: Iterable[str] = SETTINGS) -> tuple[str, ...]:
    """Return the files below the block device's directory that tell all about these settings."""
    wanted = [SETTINGS[name] for name in names]
    return tuple(dict.fromkeys(path for found in wanted for path in (found.path, *found.needs)))


def disturbed(names: Iterable[str]) -> tuple[str, ...]:
    """Return what writing these settings may change, themselves included, nothing twice."""
    found = dict.fromkeys(names)
    for name in list(found):
        found.update(dict.fromkeys(setting(name).resets))
    return tuple(found)


Check = Callable[[object], str | None]


def checks() -> dict[str, Check]:
    """Return, by setting, the check of a value that a rule asks for."""
    return {name: found.check for name, found in SETTINGS.items()}
