"""Where free data vectors go: near, one CPU each, and no vector that is placed well moves."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hbatune.facts.model import Attribute, CpuRestriction, Processors, Role, Vector
from hbatune.settings.limits import find_usable_cpus, is_free, limit_affinity, spread_vectors
from hbatune.settings.setting import Device
from hbatune.text.limit_text import describe_limit
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


def place(
    movable: Iterable[Vector],
    cpus: Processors,
    local: Mapping[str, tuple[int, ...]] = LOCAL,
) -> dict[str, int]:
    """Return the CPU of each vector, by id, in the order of the vectors."""
    movable = list(movable)
    placed = spread_vectors(movable, cpus, local).placed
    return {item.id: placed[item.id] for item in movable if item.id in placed}


def on_cpus(movable: Iterable[Vector], *masks: str) -> list[Vector]:
    """Return the vectors with these masks."""
    pairs = zip(movable, masks, strict=True)
    return [replace(item, affinity=Attribute(mask, True)) for item, mask in pairs]


def test_vectors_get_separate_near_cpus() -> None:
    placed = place([*vectors(4), *vectors(4, "b", 50)], processors())
    assert list(placed.values()) == [0, 1, 2, 3, 8, 9, 10, 11]


def test_cores_precede_siblings() -> None:
    placed = place(vectors(6), processors(8), {"a": tuple(range(8))})
    assert list(placed.values()) == [0, 1, 2, 3, 4, 5]
    few = place(vectors(3), processors(8), {"a": (0, 1, 4, 5)})
    assert list(few.values()) == [0, 1, 4]


def test_isolated_cpus_are_skipped() -> None:
    cpus = processors(isolated=(0, 1), nohz_full=(2,))
    assert list(place(vectors(3), cpus).values()) == [3, 4, 5]


def test_near_isolation_uses_far_cpus() -> None:
    cpus = processors(isolated=tuple(range(8)))
    assert list(place(vectors(2), cpus).values()) == [8, 9]


def test_full_isolation_places_nothing() -> None:
    assert place(vectors(2), processors(isolated=tuple(range(16)))) == {}


def test_managed_vectors_are_not_placed() -> None:
    unplaced = [
        vector(irq=1, adapter="a", managed=True),
        vector(irq=2, adapter="a", role=Role.ADMIN),
        vector(irq=3, adapter="a", role=Role.LINE),
        vector(irq=4, adapter="a", role=Role.UNKNOWN),
    ]
    placed = place([*unplaced, *vectors(1)], processors())
    assert placed == {vectors(1)[0].id: 0}


@given(
    counts=st.dictionaries(st.sampled_from("ab"), st.integers(1, 40), min_size=1),
    isolated=st.sets(st.integers(0, 15)),
    masks=st.lists(st.sampled_from(["0-15", *map(str, range(16))]), min_size=80, max_size=80),
)
def test_spread_is_even_and_stable(
    counts: Mapping[str, int], isolated: set[int], masks: list[str]
) -> None:
    cpus = processors(isolated=tuple(sorted(isolated)))
    all_vectors = [
        v for n, (name, c) in enumerate(counts.items()) for v in vectors(c, name, 100 * n)
    ]
    all_vectors = on_cpus(all_vectors, *masks[: len(all_vectors)])
    placed = place(all_vectors, cpus)
    usable = set(cpus.online) - isolated
    assert set(placed.values()) <= usable
    assert len(placed) == (len(all_vectors) if usable else 0)
    for name in counts:
        near = set(LOCAL[name]) & usable
        mine = [placed[v.id] for v in all_vectors if v.adapter == name and v.id in placed]
        if near:
            assert set(mine) <= near
    if all(set(near) & usable for near in LOCAL.values()):
        for name in counts:
            load = Counter(placed[v.id] for v in all_vectors if v.adapter == name)
            near = set(LOCAL[name]) & usable
            assert max(load[cpu] for cpu in near) - min(load[cpu] for cpu in near) <= 1
    assert place(reversed(all_vectors), cpus) == placed
    if placed:
        moved = on_cpus(all_vectors, *(str(placed[v.id]) for v in all_vectors))
        assert place(moved, cpus) == placed, "a spread is not spread again"
    assert all(map(is_free, all_vectors))


def test_offline_cpu_moves_only_its_vector() -> None:
    cpus = replace(processors(4), online=(0, 2, 3))
    local = {"a": (0, 1, 2, 3)}
    widened = on_cpus(vectors(4), "0", "0-3", "2", "3")
    assert list(place(widened, cpus, local).values()) == [0, 0, 2, 3]
    back = on_cpus(vectors(4), "0", "0", "2", "3")
    assert list(place(back, processors(4), local).values()) == [1, 0, 2, 3]


def test_well_placed_vectors_stay() -> None:
    local = {"a": (0, 1, 2, 3)}
    placed = place(on_cpus(vectors(3), "3", "2", "0"), processors(4), local)
    assert list(placed.values()) == [3, 2, 0]
    far = place(on_cpus(vectors(2), "5", "1"), processors(), local)
    assert set(far.values()) == {0, 1}


def test_moved_vector_returns_to_its_cpu() -> None:
    """Another tool moved one of two that hbatune had placed; the other one stays."""
    first, second = on_cpus(vectors(2), "0", "0")
    placed = [replace(first, placed=(0,)), replace(second, placed=(1,))]
    local = {"a": (0, 1)}
    assert list(place(placed, processors(2), local).values()) == [0, 1]
    swapped = [replace(first, placed=(1,)), replace(second, placed=(0,))]
    assert list(place(swapped, processors(2), local).values()) == [1, 0]


DEFAULT = {CpuRestriction.DEFAULT: tuple(range(16))}


def test_narrowed_mask_limits_its_vector() -> None:
    cpus = replace(processors(isolated=(6,)), restrictions=DEFAULT)
    pinned = on_cpus(vectors(4), "6-7", "0-15", "6", "9")
    spread = spread_vectors(pinned, cpus, LOCAL)
    assert spread.narrowed == {
        pinned[0].id: {6, 7},
        pinned[2].id: {6},
        pinned[3].id: {9},
    }
    assert spread.placed == {pinned[0].id: 7, pinned[1].id: 0, pinned[3].id: 9}


@pytest.mark.parametrize(
    ("mask", "vector_facts", "cpu_facts"),
    [
        ("9", {}, {"balancing": True}),
        ("9", {"placed": (9,)}, {}),
        ("9", {"hint": (9,)}, {}),
        ("0-7", {}, {}),  # the CPUs near the adapter
        ("0-7", {}, {"restrictions": {CpuRestriction.DEFAULT: (0, 1, 8)}}),
        ("0-2", {}, {"online": (0, 1, 2)}),
        ("9", {}, {"restrictions": {}}),  # a snapshot without the default
        ("0-8", {}, {"restrictions": {CpuRestriction.DEFAULT: tuple(range(9))}}),
    ],
)
def test_other_causes_narrow_masks(
    mask: str, vector_facts: dict[str, Any], cpu_facts: dict[str, Any]
) -> None:
    cpus = replace(replace(processors(), restrictions=DEFAULT), **cpu_facts)
    [movable] = on_cpus(vectors(1), mask)
    assert not spread_vectors([replace(movable, **vector_facts)], cpus, LOCAL).narrowed


@pytest.mark.parametrize("restriction", CpuRestriction)
def test_every_restriction_excludes_cpus(restriction: CpuRestriction) -> None:
    fields: dict[CpuRestriction, dict[str, Any]] = {
        CpuRestriction.ISOLATED: {"isolated": (0,)},
        CpuRestriction.NOHZ_FULL: {"nohz_full": (0,)},
        CpuRestriction.IRQAFFINITY: {"irqaffinity": (1, 2, 3)},
        CpuRestriction.BANNED: {"balanced": (1, 2, 3)},
    }
    facts = fields.get(restriction, {"restrictions": {restriction: (1, 2, 3)}})
    usable, reasons = find_usable_cpus(replace(processors(4), **facts))
    assert usable == (1, 2, 3)
    [reason] = reasons
    assert describe_limit(reason) == f"{restriction} excludes CPUs 0"


def test_only_further_exclusions_are_reasons() -> None:
    cpus = replace(
        processors(4, isolated=(2, 3)),
        restrictions={CpuRestriction.TUNED: (0, 1), CpuRestriction.DEFAULT: (0,)},
    )
    usable, reasons = find_usable_cpus(cpus)
    assert usable == (0,)
    assert list(map(describe_limit, reasons)) == [
        "isolcpus= excludes CPUs 2-3",
        "/proc/irq/default_smp_affinity excludes CPUs 1",
    ]


def test_unknown_restriction_moves_nothing() -> None:
    cpus = replace(processors(4), restrictions={CpuRestriction.TUNED: ()})
    assert place(vectors(2), cpus) == {}
    [reason] = spread_vectors((), cpus, {}).reasons
    assert describe_limit(reason).startswith("TuneD's isolated_cores makes no sense")


def test_managed_vector_on_excluded_cpu_gets_advice() -> None:
    cpus = processors(4, isolated=(2, 3))
    room = spread_vectors((), cpus, {})

    def explain(**facts: Any) -> str:
        device = Device({}, vector=vector(managed=True, **facts), room=room)
        return describe_limit(limit_affinity("local", "0", device).limit)

    assert explain(effective="1") == "set by the kernel (managed interrupt)"
    advice = "to free the excluded CPUs, boot with isolcpus=managed_irq,2-3"
    assert explain(effective="2").endswith(advice)
    option = explain(effective="3", unmanaged_by="smp_affinity_enable=0")
    assert option.endswith(f"{advice} or load the driver with smp_affinity_enable=0")


def test_irqaffinity_limits_cpus() -> None:
    named = replace(processors(), irqaffinity=(1, 9), balanced=tuple(range(1, 16)))
    assert list(place(vectors(3), named).values()) == [1, 1, 1]
    assert list(place(vectors(1, "b"), named).values()) == [9]
    assert place(vectors(1), replace(processors(), balanced=())) == {}
