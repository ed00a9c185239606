"""The site's configuration, ``hbatune.toml``: the active profile, limits and exclusions.

Everything has a default: a machine without the file is a machine without a profile.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from hbatune.policy.library import Commands, Library
from hbatune.policy.profile import Name, Text
from hbatune.policy.toml_files import PolicyError, TomlFile, nearest, quoted
from hbatune.settings.table import SETTINGS, known

FILE = "hbatune.toml"


class ActConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The limits of writing: seconds per write, worker processes, memory share of requests."""

    deadline_seconds: Annotated[float, Meta(ge=0.1, le=3600)] = 10.0
    workers: Annotated[int, Meta(ge=1, le=64)] = 16
    memory_share: Annotated[float, Meta(gt=0, le=1)] = 0.05


class ProbeConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The length of each short fio run in seconds; ``verify_`` is for the verdicts of `apply`.

    Where time is short, runs of an apply without `--verify` are shorter than ``verify_seconds``.
    The others are for `--verify` alone: ``verify_pairs`` is how often a change is compared with no
    change (``verdict.PAIRS``), and ``verify_limit`` the seconds that all verdicts of one run may
    take together. ``isolated`` gives the CPUs that are isolated to probes, which is where the
    document had its load (D0-13); without it they are somebody else's.
    """

    seconds: Annotated[int, Meta(ge=1, le=600)] = 2
    verify_seconds: Annotated[float, Meta(ge=0.2, le=600)] = 1.0
    verify_pairs: Annotated[int, Meta(ge=8, le=1000)] = 10
    verify_limit: Annotated[int, Meta(ge=10, le=86_400)] = 600
    isolated: bool = False


class WatchConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The intervals and alert limits of `watch` and the daemon (D0-7, D0-8).

    An alert is raised once a value has been over its limit for ``window_seconds``, and cleared
    once it has been ``hysteresis`` below that (a share of the limit) for as long.
    ``utilisation`` and ``cpu`` are shares of time; ``errors`` is the number of corrected errors of
    the bus within the window that raises an alert. A single timeout or
    uncorrected error raises one. Depths, links and error counters are read every
    ``counters_seconds``. ``latency_seconds`` and ``latency_keys`` are for the measuring by
    bpftrace: its interval, and how many I/Os in flight and how many buckets it counts at most.
    """

    interval_seconds: Annotated[float, Meta(ge=0.5, le=3600)] = 10.0
    window_seconds: Annotated[float, Meta(ge=1, le=86_400)] = 180.0
    utilisation: Annotated[float, Meta(gt=0, lt=1)] = 0.85
    cpu: Annotated[float, Meta(gt=0, lt=1)] = 0.95
    hysteresis: Annotated[float, Meta(ge=0, lt=1)] = 0.1
    errors: Annotated[int, Meta(ge=1)] = 5
    counters_seconds: Annotated[float, Meta(ge=0.5, le=3600)] = 60.0
    latency_seconds: Annotated[int, Meta(ge=1, le=300)] = 10
    latency_keys: Annotated[int, Meta(ge=1024, le=1 << 20)] = 32_768


Listen = Annotated[
    str,
    Meta(
        pattern=r"^(unix:/.{1,90}|127(\.[0-9]{1,3}){3}:[0-9]{1,5}|\[::1\]:[0-9]{1,5})$",
        description='an address of this machine alone: "127.0.0.1:9925", "[::1]:9925" or '
        '"unix:/run/hbatune/metrics.sock"',
    ),
]


class MetricsConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The destinations of the daemon's metrics, none by default.

    ``textfile`` is the folder of node_exporter's textfile collector, ``listen`` a loopback
    address or a unix socket on which they are served. Both need prometheus_client.
    """

    textfile: Text | None = None
    listen: Listen | None = None


class Approved(Struct, frozen=True, forbid_unknown_fields=True):
    """Versions that a site approved for adapters of one family: globs, of which one must fit.

    ``product`` is a glob, too. Without ``firmware`` or ``driver`` any version of it is approved.
    """

    family: Text
    product: Text = "*"
    firmware: tuple[Text, ...] = ()
    driver: tuple[Text, ...] = ()


class Counting(StrEnum):
    """The scope of an array's limit: all LUNs behind a port together, or each of them."""

    TARGET = "target"
    LUN = "lun"


class SiteArray(Struct, frozen=True, forbid_unknown_fields=True):
    """A shared array: the number of hosts at each of its ports, and a port's limit for them all.

    Its LUNs are those whose vendor and model fit the globs and, if ``targets`` names disks or
    stable ids, that are among them. ``data_drives`` is the number of drives that hold the data of
    each LUN (4 of a 4+1 RAID 5). ``lun_limit`` is the array's limit for each LUN, if the site knows
    it better than the shipped table.
    """

    name: Name
    hosts: Annotated[int, Meta(ge=1, le=4096)]
    vendor: Text = "*"
    model: Text = "*"
    targets: tuple[Text, ...] = ()
    port_limit: Commands | None = None
    counting: Counting = Counting.TARGET
    data_drives: Annotated[int, Meta(ge=1, le=1024)] | None = None
    lun_limit: Commands | None = None


class Vendors(StrEnum):
    """What becomes of the vendors' advice: nothing, shown beside the plan, or part of it."""

    OFF = "off"
    ADVISE = "advise"
    FOLLOW = "follow"


class Site(Struct, frozen=True, forbid_unknown_fields=True):
    """The facts about this installation that only its administrators know.

    ``exclude`` are disks, stable ids or PCI addresses that are left alone. ``array`` are the
    arrays that it shares with other hosts. ``members`` has the number of drives of RAID volumes,
    by disk or stable id. ``approved`` are the versions of firmware and drivers that it allows.
    ``vendors`` is what becomes of the vendors' advice, and ``uses`` has the disks that are used for
    something that a vendor has advice for, by its name (``oracle-asm``).
    """

    exclude: tuple[Text, ...] = ()
    array: tuple[SiteArray, ...] = ()
    members: dict[Text, Annotated[int, Meta(ge=1, le=256)]] = {}
    approved: tuple[Approved, ...] = ()
    vendors: Vendors = Vendors.OFF
    uses: dict[Text, tuple[Text, ...]] = {}


class Drift(StrEnum):
    """The reaction to a setting that was changed after it had been tuned."""

    REPAIR = "repair"
    REPORT = "report"  # say so, and leave it
    IGNORE = "ignore"


class DaemonConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The options of the daemon.

    Every ``audit_seconds`` it looks for drift; ``drift`` is its reaction, and ``drift_of`` the one
    for single settings. ``rollback_on_stop`` puts everything back when it stops. ``probe``
    measures new endpoints once, while they are idle, ``probe_shared`` those on fc and iscsi as
    well; ``probe_seconds`` is how long that may take in an hour. ``buffer_mib`` is the size of the
    socket buffer for udev's events, which fills while the daemon is busy.
    """

    audit_seconds: Annotated[float, Meta(ge=1, le=86_400)] = 300.0
    drift: Drift = Drift.REPAIR
    drift_of: dict[Text, Drift] = {}
    rollback_on_stop: bool = False
    probe: bool = True
    probe_shared: bool = False
    probe_seconds: Annotated[int, Meta(ge=0, le=3600)] = 60
    buffer_mib: Annotated[float, Meta(gt=0, le=1024)] = 16.0

    def about(self, setting: str) -> Drift:
        """Return the reaction to drift of this setting."""
        return self.drift_of.get(setting, self.drift)


class Unmatched(Struct, frozen=True):
    """A name of ``[site]`` that means nothing on this machine, and the key that has it."""

    key: str
    name: str


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole configuration; ``profile`` is the active one, None if there is none."""

    profile: Name | None = None
    act: ActConfig = ActConfig()
    probe: ProbeConfig = ProbeConfig()
    watch: WatchConfig = WatchConfig()
    metrics: MetricsConfig = MetricsConfig()
    site: Site = Site()
    daemon: DaemonConfig = DaemonConfig()


def load_config(library: Library) -> Config:
    """Return the site's configuration, the defaults if there is none; raise ``PolicyError``."""
    try:
        file = library.read_site(library.site / FILE)
    except FileNotFoundError:
        return Config()
    from hbatune.policy.schema import decode  # a machine may have no configuration

    config = decode(file, Config)
    _require_settings(file, config.daemon.drift_of)
    return config


def _require_settings(file: TomlFile, names: Iterable[str]) -> None:
    """Raise ``PolicyError`` for the first name in ``[daemon.drift_of]`` that is no setting.

    The shape of the file cannot: there a setting is a key, and any text may be one.
    """
    for name in names:
        if not known(name):
            raise PolicyError(
                f"unknown setting {quoted(name)}, expected one of {', '.join(sorted(SETTINGS))}",
                file=file.path,
                line=file.line(("daemon", "drift_of", name)),
                place="table [daemon.drift_of]",
                found=quoted(name),
                allowed=", ".join(sorted(SETTINGS)),
                hint=nearest(name, SETTINGS),
            )


def with_profile(text: str, name: str | None) -> str:
    """Return the text of a configuration with ``name`` as its active profile, None for no profile.

    Comments and everything else stay as the administrator wrote them. ValueError where the text
    is no TOML.
    """
    import tomllib  # a machine may have no configuration

    if tomllib.loads(text).get("profile") == name:
        return text
    import tomlkit  # heavy, and needed only where the configuration changes

    document = tomlkit.parse(text)
    if name is None:
        document.pop("profile", None)
    else:
        document["profile"] = name
    return tomlkit.dumps(document)
