"""Names: whether each drive has one of its own, and whether the site's names mean anything."""

from collections import defaultdict
from collections.abc import Iterator

from hbatune.checks.model import MACHINE, Check, Finding, Seen, Severity
from hbatune.facts.ids import UNNAMED, stable_name, stable_part
from hbatune.facts.model import Endpoint, Kind
from hbatune.policy.site_names import unmatched


def shared(check: Check, seen: Seen) -> Iterator[Finding]:
    """Find disks with one name that no map joins: one LUN twice, or two drives with one name."""
    asked = {each.id for each in seen.endpoints}
    named: dict[str, list[Endpoint]] = defaultdict(list)
    for each in seen.machine.endpoints:
        if each.kind is Kind.DISK and not _nameless(each):
            named[stable_part(each.id)].append(each)
    for name, alike in named.items():
        for each in alike if len(alike) > 1 else ():
            if each.id in asked:
                others = tuple(other.target for other in alike if other is not each)
                yield check.found(Severity.WARNING, each, name=name, others=others)


def unnamed(check: Check, seen: Seen) -> Iterator[Finding]:
    """Find disks that report no name at all, which are known by their place alone."""
    for each in seen.endpoints:
        if each.kind is not Kind.MAP and _nameless(each):
            yield check.found(Severity.INFO, each)


def of_site(check: Check, seen: Seen) -> Iterator[Finding]:
    """Find names in [site] that mean nothing on this machine."""
    for each in unmatched(seen.machine, seen.site):
        yield check.found(Severity.WARNING, MACHINE, key=each.key, name=each.name)


def _nameless(disk: Endpoint) -> bool:
    """Whether a disk's id says no more of it than its make."""
    return stable_part(disk.id) in (UNNAMED, stable_name("", disk.vendor, disk.model))
