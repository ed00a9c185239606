"""Generate docs/profiles.md: the shipped profiles side by side, for each type of disk."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from pathlib import Path

from msgspec.structs import replace

from hbatune.facts.model import Kind, TargetKind
from hbatune.policy.library import Library, load_profile, load_sources
from hbatune.policy.match import Matcher, Traits
from hbatune.policy.profile import Leave, Profile, Rule
from hbatune.shipped import find_shipped
from hbatune.text.units import format_profile_load
from tools.endpoint_types import TYPICAL_ENDPOINTS, OverviewRow, build_overview, cell, goal

PAGE = Path(__file__).resolve().parents[1] / "docs" / "profiles.md"
NAMES = ("balanced", "oltp", "latency", "throughput")
OBJECTIVE = "p99 objective"

_HEAD = """\
# The profiles side by side

hbatune ships four profiles. The tables list their values by type of disk, with the id of the source
of each value. The sources are at the end. This page is generated from `rules/*.toml`, which has a
reason for each rule. `hbatune profiles NAME` shows all rules, `hbatune explain TARGET SETTING` the
rules that match.

- `balanced` is for all workloads: scheduler and requests from the documents, and no setting that
  improves one workload at the cost of another.
- `oltp` is for databases with many small I/Os a second and a limit for tail latency: queues deep
  enough for the peak, completions spread over all CPUs, no coalescing.
- `latency` is for services that wait for each answer and need the lowest tail latency. It sets
  queues up to the knee, few requests, writeback that yields to reads, and drives that stay awake.
- `throughput` is for backup, scans and streaming, which need bandwidth: queues beyond the knee, a
  large read-ahead, requests of 1 MiB, unchanged coalescing.

A profile has only values with a source or a measurement. All others are *unchanged*. If
*unchanged* has a source, this source recommends it. A profile raises queue depths and never lowers
them. Your own disks may differ: `hbatune apply` measures the effect, and `hbatune autotune`
searches for better values ([autotune.md](autotune.md)).

All profiles except `balanced` also place an adapter's interrupts on CPUs near it, if the kernel
allows it (K-irq-spread), and contain options of modules, which `--module-options` enables.
`hbatune profiles NAME` also shows the regression that a profile tolerates.
"""

_UNSET = """\
## Settings in no profile

- `read_ahead_kb` for databases: the sources contradict each other. tuned's profiles for databases
  set 4096 KiB, its profile for Spectrum Scale sets no read-ahead.
- `wbt_lat_usec` for throughput: 0 would let writeback fill the queue. The throttling already allows
  this when there are no concurrent reads (block/blk-wbt.c: wb_timer_fn).
- `max_sectors_kb` above 1024: kernels with a default of 4096 had to revert it for SATA
  drives that fail such requests (commits 9b8b84879d4a and 5f64ae1ef639).
- `rq_affinity` for native NVMe, where each CPU's queue completes its own requests; for few and
  large I/Os; and on arrays, whose vendors publish their own values ([vendors.md](vendors.md)).
- Scheduler and requests of virtual disks: no document covers them, and the hypervisor orders their
  work. tuned's advice for guests is about read-ahead, and `throughput` follows it.
- `nomerges`, `add_random`, `iostats`: they only affect CPU time, and no source has figures for
  these disks.

"""


def page() -> str:
    """Return the whole page as Markdown."""
    library = Library(find_shipped("rules"), site=Path("/nonexistent"))
    profiles = {name: load_profile(name, library) for name in NAMES}
    rows = {name: by_kind(profile) for name, profile in profiles.items()}
    kinds = {kind: {name: rows[name][kind] for name in NAMES} for kind in TYPICAL_ENDPOINTS}
    parts = [
        _HEAD,
        "\n".join(_loads(profiles)),
        *("\n".join(_of(kind, rows_by_profile)) for kind, rows_by_profile in kinds.items()),
    ]
    parts += [_UNSET + "## Sources\n", "\n".join(_sources(profiles, kinds.values()))]
    return "\n".join(parts) + "\n"


def by_kind(profile: Profile) -> dict[str, OverviewRow]:
    """Return a profile's row for each type of disk, including its controller or host."""
    return {row.endpoint: _with_adapter(profile, row) for row in build_overview(profile)}


def settings(row: OverviewRow) -> dict[str, str]:
    """Return the row's values and objective, with their sources."""
    cells = {name: cell(row, name) for name, rule in row.rules.items() if _sets(rule)}
    return cells | ({OBJECTIVE: goal(row)} if row.objective else {})


def alike(rows: Mapping[str, OverviewRow]) -> list[tuple[str, str]]:
    """Return the pairs of profiles with the same values and objectives."""
    settings_by_profile = {name: settings(row) for name, row in rows.items()}
    return [
        (first, second)
        for first, second in combinations(settings_by_profile, 2)
        if settings_by_profile[first] == settings_by_profile[second]
    ]


def _with_adapter(profile: Profile, row: OverviewRow) -> OverviewRow:
    rules = dict(row.rules)
    for properties in _adapter(TYPICAL_ENDPOINTS[row.endpoint]):
        rules |= Matcher(profile).won(properties)
    return OverviewRow(row.endpoint, rules, row.objective)


def _adapter(properties: Traits) -> Iterator[Traits]:
    """Yield the traits of the controller or host that has separate settings."""
    if properties.kind is not Kind.MAP and properties.family == "nvme":
        yield replace(properties, kind=Kind.DISK, target=TargetKind.CONTROLLER)
    elif properties.family == "lpfc":
        yield Traits(
            properties.family, properties.protocol, properties.medium, target=TargetKind.HOST
        )


def _sets(rule: Rule) -> bool:
    return not isinstance(rule.effect, Leave)


def _loads(profiles: Mapping[str, Profile]) -> Iterator[str]:
    yield "## The load of each profile\n"
    yield "`apply` compares each change at this load, and its verdict decides.\n"
    for name, profile in profiles.items():
        yield f"- `{name}`: {format_profile_load(profile.probe)}"
    yield ""


def _of(kind: str, rows: Mapping[str, OverviewRow]) -> Iterator[str]:
    settings_by_profile = {name: settings(row) for name, row in rows.items()}
    names = dict.fromkeys(
        setting
        for values in settings_by_profile.values()
        for setting in values
        if setting != OBJECTIVE
    )
    yield f"## {kind}\n"
    if not any(settings_by_profile.values()):
        yield "No profile sets anything.\n"
        return
    yield f"| setting | {' | '.join(f'`{name}`' for name in rows)} |"
    yield "|" + " --- |" * (1 + len(rows))
    for setting in names:
        yield _line(f"`{setting}`", (_cell(row, setting) for row in rows.values()))
    if any(OBJECTIVE in values for values in settings_by_profile.values()):
        yield _line(OBJECTIVE, (settings_by_profile[name].get(OBJECTIVE, "") for name in rows))
    yield ""
    if pairs := alike(rows):
        yield f"Alike here: {'; '.join(f'`{first}` and `{second}`' for first, second in pairs)}.\n"


def _cell(row: OverviewRow, setting: str) -> str:
    """Return the row's value of a setting with its source, or the source that leaves it."""
    rule = row.rules.get(setting)
    is_left = rule is not None and not _sets(rule)
    return f"unchanged ({rule.source})" if is_left and rule else cell(row, setting)


def _line(first: str, cells: Iterable[str]) -> str:
    return f"| {first} | {' | '.join(cells)} |".replace("|  |", "| |").replace("|  |", "| |")


def _sources(
    profiles: Mapping[str, Profile], rows_by_kind: Iterable[Mapping[str, OverviewRow]]
) -> Iterator[str]:
    sources = load_sources(find_shipped("rules"))
    cited = {profile.probe.source for profile in profiles.values()}
    for rows in rows_by_kind:
        names = {name for row in rows.values() for name in settings(row)}
        for row in rows.values():
            cited |= {rule.source for name, rule in row.rules.items() if name in names}
            cited |= {row.objective.source} if row.objective else set()
    for id in sorted(cited):
        source = sources[id]
        yield f"- {id}: {source.title}, {source.section}. {source.says}"
