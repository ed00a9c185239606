"""Run in a described machine's namespace: each disk and each host as a part beside the whole.

Arguments: the attributes to read. Prints how many parts of a machine that is known are alike,
unlike, and cannot be told; of disks that are looked at by name, where nothing is known, how many
are looked at without all others, and how many are unlike.
"""

import sys
from collections.abc import Sequence

from msgspec.structs import replace

from hbatune.facts.machine import (
    InsufficientFactsError,
    KnownMachine,
    Scope,
    gather_machine,
)
from hbatune.facts.model import Endpoint, Machine, TargetKind
from hbatune.plan.make import make_plan
from hbatune.plan.rows import Row
from hbatune.policy.library import installed_library, list_profiles, load_profile
from hbatune.policy.profile import Profile
from hbatune.settings.table import list_attributes as files

OF = {kind: files(on=kind) for kind in (TargetKind.CONTROLLER, TargetKind.HOST)}


def bare(machine: Machine) -> dict[str, Endpoint]:
    """Return the endpoints by id, without the uses, which a part does not read."""
    unread = {"mounts": (), "holders": (), "volumes": ()}
    return {endpoint.id: replace(endpoint, **unread) for endpoint in machine.endpoints}


def rows(machine: Machine, profile: Profile) -> dict[str, list[Row]]:
    """Return the plan's rows of endpoints by id."""
    ids = {endpoint.id for endpoint in machine.endpoints}
    planned: dict[str, list[Row]] = {}
    for row in make_plan(machine, profile).rows:
        if row.id in ids:
            planned.setdefault(row.id, []).append(row)
    return planned


def as_in_the_whole(part: Machine, full: Machine, name: str, profiles: Sequence[Profile]) -> bool:
    """Return whether a disk's part has the facts and plan rows of the full scan."""
    ids = {endpoint.id for endpoint in part.endpoints}
    serving = {endpoint.adapter for endpoint in part.endpoints}
    among = tuple(endpoint for endpoint in full.endpoints if endpoint.id in ids)
    same = among == part.endpoints and any(endpoint.target == name for endpoint in among)
    same &= part.adapters == full.adapters and part.modules == full.modules
    for of_part, of_full in ((part.vectors, full.vectors), (part.controls, full.controls)):
        part_items, full_items = (
            [item for item in items if item.adapter in serving] for items in (of_part, of_full)
        )
        same &= part_items == full_items
    for profile in profiles:
        same &= make_plan(part, profile, only=ids).rows == make_plan(full, profile, only=ids).rows
    return same


def main(attributes: list[str]) -> tuple[int, ...]:
    """Compare all parts with the full scan."""
    library = installed_library()
    profiles = [load_profile(listed.name, library) for listed in list_profiles(library)]
    full = gather_machine(attributes, of=OF)
    endpoints, planned = bare(full), [rows(full, profile) for profile in profiles]
    alike = unlike = unknown = 0
    hosts = [host.name for adapter in full.adapters for host in adapter.hosts]
    for name in [*(endpoint.target for endpoint in full.endpoints), *hosts]:
        try:
            part = gather_machine(attributes, Scope([name], KnownMachine(full)))
        except InsufficientFactsError:
            unknown += 1
            continue
        part_endpoints = bare(part)
        same = all(endpoints.get(id) == endpoint for id, endpoint in part_endpoints.items())
        same &= name in hosts or any(
            endpoint.target == name for endpoint in part_endpoints.values()
        )
        for profile, all_rows in zip(profiles, planned, strict=True):
            same &= rows(part, profile) == {
                id: id_rows for id, id_rows in all_rows.items() if id in part_endpoints
            }
        alike, unlike = alike + same, unlike + (not same)
        if not same:
            print(name, file=sys.stderr)
    by_name = {
        endpoint.target: gather_machine(attributes, Scope([endpoint.target]), of=OF)
        for endpoint in full.endpoints
    }
    differing_parts = [
        n for n, named_part in by_name.items() if not as_in_the_whole(named_part, full, n, profiles)
    ]
    print(*differing_parts, file=sys.stderr)
    alone = [len(named_part.endpoints) < len(full.endpoints) for named_part in by_name.values()]
    return alike, unlike, unknown, sum(alone), len(differing_parts)


if __name__ == "__main__":
    print(*main(sys.argv[1:]))
