"""Resolves the names in ``[site]`` on a machine, and finds those that mean nothing there. Pure.

A name is anything that a command takes as a TARGET. A stable name is understood in any case and
with any of the prefixes that links and tools put before it (``ids.canonical``), and a map, or the
visible disk of an NVMe subsystem, means its paths as well.
"""

from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from hbatune.facts.ids import canonical, lasting, stable_part
from hbatune.facts.model import Kind, Machine
from hbatune.facts.targets import adapter_names, all_names
from hbatune.policy.config import Site


class Unmatched(Struct, frozen=True):
    """A name of ``[site]`` that means nothing on this machine, and the key that has it."""

    key: str
    name: str


class SiteNames:
    """The meaning of names on one machine; all names of it are gathered once."""

    def __init__(self, machine: Machine) -> None:
        self._ids: dict[str, set[str]] = {}
        self._stable: dict[str, set[str]] = {}
        self._paths: dict[str, set[str]] = {}
        for id, names in all_names(machine).items():
            for name in names:
                self._ids.setdefault(name, set()).add(id)
        by_target = {each.target: each.id for each in machine.endpoints}
        for each in machine.endpoints:
            for text in (stable_part(each.id), each.id, lasting(each.id)):
                self._stable.setdefault(canonical(text), set()).add(each.id)
            if each.paths:
                self._paths[each.id] = {by_target[path] for path in each.paths if path in by_target}
        self._adapters = {name for each in machine.adapters for name in adapter_names(each)}

    def meant(self, names: Iterable[str]) -> frozenset[str]:
        """Return the ids of all targets that any of the names means."""
        found: set[str] = set()
        for name in names:
            found |= self._ids.get(name, set()) | self._stable.get(canonical(name), set())
        # With a map its paths: a write to a path would reach the map that was excluded.
        below = (self._paths.get(id, set()) for id in tuple(found))
        return frozenset(found.union(*below))

    def unmatched(self, site: Site) -> Iterator[Unmatched]:
        """Yield the names of the site that mean nothing here."""
        for key, names in _named(site):
            for name in names:
                if not self.meant((name,)) and name not in self._adapters:
                    yield Unmatched(key, name)


def unmatched(machine: Machine, site: Site) -> tuple[Unmatched, ...]:
    """Return the names of the site that mean nothing on this machine."""
    if not any(names for _, names in _named(site)):
        return ()
    return tuple(SiteNames(machine).unmatched(site))


def leading(machine: Machine, site: Site, follow: Callable[[str], str]) -> Site:
    """Return the site with each link to one of the machine's disks replaced by the disk's name.

    ``follow`` returns a disk's kernel name, or the given name if there is no such link (now).
    """
    disks = {each.target for each in machine.endpoints}

    def led(name: str) -> str:
        disk = follow(name)
        return disk if disk in disks else name

    arrays = (replace(array, targets=tuple(map(led, array.targets))) for array in site.array)
    return replace(
        site,
        exclude=tuple(map(led, site.exclude)),
        array=tuple(arrays),
        members={led(name): count for name, count in site.members.items()},
    )


def noted(machine: Machine, site: Site, follow: Callable[[str], str]) -> Site:
    """Return the site for udev rules, which see neither a link's end nor a map's paths.

    ``follow`` is as for ``leading``. A disk that is excluded by such a name is also excluded by
    the ids that the name means now. The name stays, since it may mean another disk later.
    """
    if not site.exclude:
        return site
    names, followed = SiteNames(machine), leading(machine, site, follow).exclude
    maps = {each.id for each in machine.endpoints if each.kind is Kind.MAP}
    ids: list[str] = []
    for name, disk in zip(site.exclude, followed, strict=True):
        meant = names.meant((disk,))
        if disk != name or meant & maps:
            ids += sorted(meant)
    return replace(site, exclude=tuple(dict.fromkeys((*site.exclude, *ids))))


def _named(site: Site) -> Iterator[tuple[str, Iterable[str]]]:
    yield "exclude", site.exclude
    for array in site.array:
        yield f"targets of array {array.name}", array.targets
    yield "members", site.members
