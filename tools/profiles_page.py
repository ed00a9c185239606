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

Four profiles ship. What each of them sets, by the kind of disk, with the id of the source behind
each value; the sources stand at the end. This page is generated from `rules/*.toml`, where each
rule says why: `hbatune profiles NAME` shows them, `hbatune explain TARGET SETTING` the ones that
matched.

- `balanced` is for everybody: scheduler and requests as the documents have them, and nothing that
  one load would pay for another's gain.
- `oltp` is for databases, which want many small I/Os a second and a tail that holds: queues as
  deep as the peak takes, completions spread over all CPUs, no coalescing.
- `latency` is for services that wait for each answer, and want the lowest tail: queues that end
  where waiting begins, few requests, writeback that yields to reads, drives that stay awake.
- `throughput` is for backup, scans and streaming, which want bandwidth: queues past the knee, reads
  far ahead, requests of 1 MiB, coalescing as it is.

A value that no source and no measurement stands behind is in no profile: *as it is* then. With a
source it is left because that source says so. A queue depth is raised, and never lowered.
What your own disks say can differ: `hbatune apply` measures it, and `hbatune autotune` looks for
better ([autotune.md](autotune.md)).

Besides, all but `balanced` place an adapter's interrupts, where the kernel lets them be moved, on
CPUs near it (K-irq-spread), and have the options of modules that `--module-options` allows. The
profiles also differ in the cost that a change may have: `hbatune profiles NAME`.
"""

_UNSET = """\
## What no profile sets, and why

- `read_ahead_kb` for databases: the sources contradict each other. tuned's profiles for databases
  have 4096 KiB, that of Spectrum Scale none at all.
- `wbt_lat_usec` for throughput: off would let writeback fill the queue, which the throttling allows
  by itself as soon as nothing is read beside it (block/blk-wbt.c: wb_timer_fn).
- `max_sectors_kb` above 1024: kernels that made 4096 the default had to take it back for SATA
  drives that fail such requests (commits 9b8b84879d4a and 5f64ae1ef639).
- `rq_affinity` where a queue for each CPU ends what it began (native NVMe), where I/Os are few and
  large, and on arrays, whose vendors say what they want ([vendors.md](vendors.md)).
- Scheduler and requests of virtual disks: no document speaks of them, and the hypervisor orders
  their work. tuned's advice for guests is about reading ahead, which `throughput` follows.
- `nomerges`, `add_random`, `iostats`: what they cost or save is a matter of CPU time, of which no
  source has a figure for these disks.

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
    return f"as it is ({rule.source})" if is_left and rule else cell(row, setting)


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
