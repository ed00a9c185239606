"""Run in a described machine's namespace: each disk and each host as a part beside the whole.

Arguments: the attributes to read. Prints how many parts of a machine that is known are alike,
unlike, and cannot be told; of disks that are looked at by name, where nothing is known, how many
are looked at without all others, and how many are unlike.
"""

import sys
from collections.abc import Sequence

from msgspec.structs import replace

from hbatune.facts.machine import Scope, gather_machine
from hbatune.facts.model import Endpoint, Machine, TargetKind
from hbatune.facts.part import InsufficientFactsError, KnownMachine
from hbatune.plan.make import make_plan
from hbatune.plan.rows import Row
from hbatune.policy.library import installed_library, list_profiles, load_profile
from hbatune.policy.profile import Profile
from hbatune.settings.table import list_attributes as files

OF = {kind: files(on=kind) for kind in (TargetKind.CONTROLLER, TargetKind.HOST)}


def bare(found: Machine) -> dict[str, Endpoint]:
    """Return the endpoints by id, without what a part does not look for."""
    return {endpoint.id: replace(endpoint, mounts=(), holders=()) for endpoint in found.endpoints}


def rows(found: Machine, profile: Profile) -> dict[str, list[Row]]:
    """Return the rows of the plan by id, those of endpoints alone."""
    ids = {endpoint.id for endpoint in found.endpoints}
    planned: dict[str, list[Row]] = {}
    for row in make_plan(found, profile).rows:
        if row.id in ids:
            planned.setdefault(row.id, []).append(row)
    return planned


def as_in_the_whole(found: Machine, whole: Machine, name: str, known: Sequence[Profile]) -> bool:
    """Whether a disk that was looked at by its name is as it is, and is planned, in the whole."""
    ids = {endpoint.id for endpoint in found.endpoints}
    serving = {endpoint.adapter for endpoint in found.endpoints}
    among = tuple(endpoint for endpoint in whole.endpoints if endpoint.id in ids)
    same = among == found.endpoints and any(each.target == name for each in among)
    same &= found.adapters == whole.adapters and found.modules == whole.modules
    for of_found, of_whole in ((found.vectors, whole.vectors), (found.controls, whole.controls)):
        own, all_of_them = (
            [each for each in some if each.adapter in serving] for some in (of_found, of_whole)
        )
        same &= own == all_of_them
    for profile in known:
        same &= make_plan(found, profile, only=ids).rows == make_plan(whole, profile, only=ids).rows
    return same


def main(attributes: list[str]) -> tuple[int, ...]:
    """Compare all parts with the whole."""
    library = installed_library()
    known = [load_profile(each.name, library) for each in list_profiles(library)]
    whole = gather_machine(attributes, of=OF)
    endpoints, planned = bare(whole), [rows(whole, each) for each in known]
    alike = unlike = unknown = 0
    hosts = [host.name for adapter in whole.adapters for host in adapter.hosts]
    for name in [*(endpoint.target for endpoint in whole.endpoints), *hosts]:
        try:
            part = gather_machine(attributes, Scope([name], KnownMachine(whole)))
        except InsufficientFactsError:
            unknown += 1
            continue
        found = bare(part)
        same = all(endpoints.get(id) == each for id, each in found.items())
        same &= name in hosts or any(each.target == name for each in found.values())
        for profile, all_rows in zip(known, planned, strict=True):
            same &= rows(part, profile) == {
                id: each for id, each in all_rows.items() if id in found
            }
        alike, unlike = alike + same, unlike + (not same)
        if not same:
            print(name, file=sys.stderr)
    by_name = {
        endpoint.target: gather_machine(attributes, Scope([endpoint.target]), of=OF)
        for endpoint in whole.endpoints
    }
    other = [n for n, found in by_name.items() if not as_in_the_whole(found, whole, n, known)]
    print(*other, file=sys.stderr)
    alone = [len(found.endpoints) < len(whole.endpoints) for found in by_name.values()]
    return alike, unlike, unknown, sum(alone), len(other)


if __name__ == "__main__":
    print(*main(sys.argv[1:]))
