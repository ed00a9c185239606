"""Where free data vectors go: near, one CPU each, the same whatever they are now."""

from collections import Counter
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hbatune.facts.model import Attribute, Processors, Role, Vector
from hbatune.settings.limits import is_free, spread_vectors
from tests.unit.machines import vector

LOCAL = {"a": tuple(range(8)), "b": tuple(range(8, 16))}


def processors(cpus: int = 16, **kept_free: tuple[int, ...]) -> Processors:
    """CPUs of which N and N+cpus/2 share a core, as x86 numbers them."""
    half = cpus // 2
    return Processors(
        online=tuple(range(cpus)),
        cores=tuple((cpu, cpu + half) for cpu in range(half)),
        isolated=kept_free.get("isolated", ()),
        nohz_full=kept_free.get("nohz_full", ()),
    )


def vectors(count: int, adapter: str = "a", first: int = 30) -> list[Vector]:
    return [vector(irq=first + number, adapter=adapter) for number in range(count)]


def test_vectors_get_separate_near_cpus() -> None:
    placed = spread_vectors([*vectors(4), *vectors(4, "b", 50)], processors(), LOCAL)
    assert list(placed.values()) == [0, 1, 2, 3, 8, 9, 10, 11]


def test_cores_precede_siblings() -> None:
    placed = spread_vectors(vectors(6), processors(8), {"a": tuple(range(8))})
    assert list(placed.values()) == [0, 1, 2, 3, 4, 5]
    few = spread_vectors(vectors(3), processors(8), {"a": (0, 1, 4, 5)})
    assert list(few.values()) == [0, 1, 4]


def test_isolated_cpus_are_skipped() -> None:
    kept = processors(isolated=(0, 1), nohz_full=(2,))
    assert list(spread_vectors(vectors(3), kept, LOCAL).values()) == [3, 4, 5]


def test_near_isolation_uses_far_cpus() -> None:
    kept = processors(isolated=tuple(range(8)))
    assert list(spread_vectors(vectors(2), kept, LOCAL).values()) == [8, 9]


def test_full_isolation_places_nothing() -> None:
    assert spread_vectors(vectors(2), processors(isolated=tuple(range(16))), LOCAL) == {}


def test_managed_vectors_are_not_placed() -> None:
    others = [
        vector(irq=1, adapter="a", managed=True),
        vector(irq=2, adapter="a", role=Role.ADMIN),
        vector(irq=3, adapter="a", role=Role.LINE),
        vector(irq=4, adapter="a", role=Role.UNKNOWN),
    ]
    placed = spread_vectors([*others, *vectors(1)], processors(), LOCAL)
    assert placed == {vectors(1)[0].id: 0}


@given(
    counts=st.dictionaries(st.sampled_from("ab"), st.integers(1, 40), min_size=1),
    isolated=st.sets(st.integers(0, 15)),
    current=st.lists(st.integers(0, 15), min_size=80, max_size=80),
)
def test_spread_is_even_and_stable(
    counts: Mapping[str, int], isolated: set[int], current: list[int]
) -> None:
    cpus = processors(isolated=tuple(sorted(isolated)))
    there = [v for n, (name, c) in enumerate(counts.items()) for v in vectors(c, name, 100 * n)]
    placed = spread_vectors(there, cpus, LOCAL)
    usable = set(cpus.online) - isolated
    assert set(placed.values()) <= usable
    assert len(placed) == (len(there) if usable else 0)
    for name in counts:
        near = set(LOCAL[name]) & usable
        mine = [placed[v.id] for v in there if v.adapter == name and v.id in placed]
        if near:
            assert set(mine) <= near
    if all(set(near) & usable for near in LOCAL.values()):
        for name in counts:
            load = Counter(placed[v.id] for v in there if v.adapter == name)
            near = set(LOCAL[name]) & usable
            assert max(load[cpu] for cpu in near) - min(load[cpu] for cpu in near) <= 1
    moved = [
        replace(v, affinity=Attribute(str(cpu), True))
        for v, cpu in zip(there, current, strict=False)
    ]
    assert spread_vectors(reversed(moved), cpus, LOCAL) == placed
    assert all(map(is_free, moved))


def test_irqaffinity_limits_cpus() -> None:
    named = replace(processors(), irqaffinity=(1, 9), balanced=tuple(range(1, 16)))
    assert list(spread_vectors(vectors(3), named, LOCAL).values()) == [1, 1, 1]
    assert list(spread_vectors(vectors(1, "b"), named, LOCAL).values()) == [9]
    assert spread_vectors(vectors(1), replace(processors(), balanced=()), LOCAL) == {}
