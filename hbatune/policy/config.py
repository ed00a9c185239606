"""The site's configuration, ``hbatune.toml``: the active profile, limits and exclusions.

Everything has a default. A machine without the file has no active profile.
"""

from collections.abc import Iterator
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from hbatune.policy.library import Commands, Library, installed_library
from hbatune.policy.profile import Name, Text
from hbatune.policy.schema import Steps, decode_file, make_error
from hbatune.policy.toml_files import PolicyError, TomlFile, quote_value, suggest_nearest
from hbatune.settings.table import SETTINGS, is_setting

CONFIG_FILE = "hbatune.toml"


class ActConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The limits of writing: seconds per write, worker processes, memory share of requests."""

    deadline_seconds: Annotated[float, Meta(ge=0.1, le=3600)] = 10.0
    workers: Annotated[int, Meta(ge=1, le=64)] = 16
    memory_share: Annotated[float, Meta(gt=0, le=1)] = 0.05


class ProbeConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The length of each short fio run in seconds; ``verify_`` is for the verdicts of `apply`.

    If time is short, runs of an apply without `--verify` are shorter than ``verify_seconds``. The
    other options apply only to `--verify`. ``verify_pairs`` is the number of comparisons with and
    without a change (``verdict.DEFAULT_PAIRS``). ``verify_limit`` limits the total time of all
    verdicts of one run, in seconds. ``isolated`` lets probes use isolated CPUs, as the load of the
    document did (D0-13). Without it these CPUs are reserved for other processes.
    """

    seconds: Annotated[int, Meta(ge=1, le=600)] = 2
    verify_seconds: Annotated[float, Meta(ge=0.2, le=600)] = 1.0
    verify_pairs: Annotated[int, Meta(ge=8, le=1000)] = 10
    verify_limit: Annotated[int, Meta(ge=10, le=86_400)] = 600
    isolated: bool = False


class WatchConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The intervals and alert limits of `watch` and the daemon (D0-7, D0-8).

    An alert is raised if a value exceeds its limit for ``window_seconds``. It is cleared if the
    value stays ``hysteresis`` (a fraction of the limit) below the limit for the same time.
    ``utilisation`` and ``cpu`` are fractions of time. ``errors`` is the number of corrected bus
    errors, NVMe retries or failovers within the window that raises an alert. A single timeout,
    uncorrected error or lost I/O raises one. Depths, links and counters are read every
    ``counters_seconds``.
    """

    interval_seconds: Annotated[float, Meta(ge=0.5, le=3600)] = 10.0
    window_seconds: Annotated[float, Meta(ge=1, le=86_400)] = 180.0
    utilisation: Annotated[float, Meta(gt=0, lt=1)] = 0.85
    cpu: Annotated[float, Meta(gt=0, lt=1)] = 0.95
    hysteresis: Annotated[float, Meta(ge=0, lt=1)] = 0.1
    errors: Annotated[int, Meta(ge=1)] = 5
    counters_seconds: Annotated[float, Meta(ge=0.5, le=3600)] = 60.0


class MetricsConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The destination of the daemon's metrics, none by default; they need prometheus_client.

    ``textfile`` is the directory of node_exporter's textfile collector.
    """

    textfile: Text | None = None


class ApprovedVersions(Struct, frozen=True, forbid_unknown_fields=True):
    """Versions approved by a site for adapters of one family: globs, at least one must match.

    ``product`` is a glob, too. Without ``firmware`` or ``driver`` any version of it is approved.
    """

    family: Text
    product: Text = "*"
    firmware: tuple[Text, ...] = ()
    driver: tuple[Text, ...] = ()


class LimitScope(StrEnum):
    """The scope of an array's limit: all LUNs behind a port together, or each LUN."""

    TARGET = "target"
    LUN = "lun"


class SiteArray(Struct, frozen=True, forbid_unknown_fields=True):
    """A shared array: the number of hosts at each port, and a port's limit for all of them.

    Vendor and model of its LUNs match the globs. If ``targets`` contains disks or stable ids, the
    LUNs must be among them. ``data_drives`` is the number of data drives of each LUN (4 of a 4+1
    RAID 5). ``lun_limit`` is the array's limit for each LUN and overrides the shipped table.
    """

    name: Name
    hosts: Annotated[int, Meta(ge=1, le=4096)]
    vendor: Text = "*"
    model: Text = "*"
    targets: tuple[Text, ...] = ()
    port_limit: Commands | None = None
    counting: LimitScope = LimitScope.TARGET
    data_drives: Annotated[int, Meta(ge=1, le=1024)] | None = None
    lun_limit: Commands | None = None


class Vendors(StrEnum):
    """The use of vendors' advice: none, shown with the plan, or part of the plan."""

    OFF = "off"
    ADVISE = "advise"
    FOLLOW = "follow"


class SiteAdapter(Struct, frozen=True, forbid_unknown_fields=True):
    """The options of an adapter: whether coalescing in its ``firmware`` is read, or also set."""

    firmware: Literal["read", "set"] | None = None


class Site(Struct, frozen=True, forbid_unknown_fields=True):
    """The facts about this installation that only its administrators know.

    ``exclude`` contains the disks, stable ids or PCI addresses that hbatune does not change.
    ``array`` contains the arrays shared with other hosts. ``members`` maps disks or stable ids to
    the number of drives of the RAID volume. ``approved`` contains the allowed firmware and driver
    versions. ``vendors`` is the use of vendors' advice. ``uses`` lists disks by a use that vendors
    have advice for, such as ``oracle-asm``. ``adapter`` has options, by PCI address or SCSI host.
    """

    exclude: tuple[Text, ...] = ()
    array: tuple[SiteArray, ...] = ()
    members: dict[Text, Annotated[int, Meta(ge=1, le=256)]] = {}
    approved: tuple[ApprovedVersions, ...] = ()
    vendors: Vendors = Vendors.OFF
    uses: dict[Text, tuple[Text, ...]] = {}
    adapter: dict[Text, SiteAdapter] = {}


class DriftReaction(StrEnum):
    """The reaction to a setting that was changed after it had been tuned."""

    REPAIR = "repair"
    REPORT = "report"  # report it without changing it
    IGNORE = "ignore"


class DaemonConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The options of the daemon.

    Every ``audit_seconds`` it checks for drift. ``drift`` is its reaction, and ``drift_of`` has the
    reactions for single settings. ``rollback_on_stop`` restores everything when the daemon stops.
    ``buffer_mib`` is the size of the socket buffer for udev's events.
    """

    audit_seconds: Annotated[float, Meta(ge=1, le=86_400)] = 300.0
    drift: DriftReaction = DriftReaction.REPAIR
    drift_of: dict[Text, DriftReaction] = {}
    rollback_on_stop: bool = False
    buffer_mib: Annotated[float, Meta(gt=0, le=1024)] = 16.0


_REMOVED_KEYS = {
    "daemon": ("probe", "probe_shared", "probe_seconds"),
    "metrics": ("listen",),
    "watch": ("latency_seconds", "latency_keys"),
}
"""Keys of packages before 1.0.0. They are ignored, so the daemon survives an upgrade."""


class SiteKey(StrEnum):
    """A key in ``[site]`` that contains names, as ``UnmatchedName`` and findings store it."""

    EXCLUDE = "exclude"
    TARGETS = "targets of array {}"
    ARRAY = "vendor and model of array {}"
    MEMBERS = "members"
    USES = "uses {}"
    ADAPTER = "adapter"


class UnmatchedName(Struct, frozen=True):
    """A name in ``[site]`` that matches nothing on this machine, and its key."""

    key: str
    name: str


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """The complete configuration. ``profile`` is the active profile, or None."""

    profile: Name | None = None
    act: ActConfig = ActConfig()
    probe: ProbeConfig = ProbeConfig()
    watch: WatchConfig = WatchConfig()
    metrics: MetricsConfig = MetricsConfig()
    site: Site = Site()
    daemon: DaemonConfig = DaemonConfig()


def load_config(library: Library) -> Config:
    """Return the site's configuration, or the defaults. Raise ``PolicyError`` if it is invalid."""
    file = read_config_file(library)
    config = decode_file(file, Config)
    for error in list_unknown_settings(file):
        raise error
    return config


def read_config_file(library: Library) -> TomlFile:
    """Return the site's configuration file, which is empty if there is no such file."""
    path = library.site / CONFIG_FILE
    try:
        file = library.read_site(path)
    except FileNotFoundError:
        return TomlFile(path, "", {})
    for name, keys in _REMOVED_KEYS.items():
        if isinstance(table := file.data.get(name), dict):
            for key in keys:
                table.pop(key, None)
    return file


def list_unknown_settings(file: TomlFile) -> Iterator[PolicyError]:
    """Yield the errors in [daemon.drift_of], whose keys may be any text for the file's shape."""
    daemon = file.data.get("daemon")
    names = daemon.get("drift_of") if isinstance(daemon, dict) else None
    for name in names if isinstance(names, dict) else ():
        if not is_setting(name):
            allowed = ", ".join(sorted(SETTINGS))
            problem = f"unknown setting {quote_value(name)}, expected one of {allowed}"
            line, place = file.line(("daemon", "drift_of", name)), "table [daemon.drift_of]"
            hint = suggest_nearest(name, SETTINGS)
            yield PolicyError(problem, file=file.path, line=line, place=place, hint=hint)


def make_site_error(library: Library, steps: Steps, problem: str, hint: str | None) -> PolicyError:
    """Return the error for a value of the configuration, with its line unless a snapshot has it."""
    with suppress(PolicyError):
        file = read_config_file(library)
        if file.line(steps) is not None:
            return make_error(file, steps, problem, hint=hint)
    return PolicyError(problem, hint=hint)


def with_profile(text: str, name: str | None) -> str:
    """Return the text of a configuration with ``name`` as its active profile, or without one.

    Comments and everything else stay as the administrator wrote them. Raise ValueError if the text
    is not TOML.
    """
    import tomllib  # a machine may have no configuration

    if tomllib.loads(text).get("profile") == name:
        return text
    import tomlkit  # slow to import, and needed only to change the configuration

    document = tomlkit.parse(text)
    if name is None:
        document.pop("profile", None)
    else:
        document["profile"] = name
    return tomlkit.dumps(document)


def load_configuration() -> Config:
    """Return the site's configuration."""
    return load_config(installed_library())


def find_configuration_file() -> Path:
    """Return the path of the site's configuration."""
    return installed_library().site / CONFIG_FILE
