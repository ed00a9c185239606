"""Adapters whose coalescing nobody can set: a row says so, so that nobody looks for it. Pure."""

from collections.abc import Iterator

from hbatune.facts.families import family_named
from hbatune.facts.levers import Mechanism
from hbatune.facts.model import Machine, TargetKind
from hbatune.plan.rows import Row, State
from hbatune.policy.match import Matcher, adapter_traits
from hbatune.policy.model import Leave

COALESCING = "coalescing"


def leverless(machine: Machine, matcher: Matcher) -> Iterator[Row]:
    """Yield a row for each adapter with interrupts whose coalescing nobody can set."""
    for adapter in machine.adapters:
        levers = family_named(adapter.family).coalescing
        settable = any(lever.mechanism is not Mechanism.FIXED for lever in levers)
        traits = adapter_traits(adapter, TargetKind.CONTROLLER)
        rule = matcher.decide(traits)[1].get(COALESCING)
        if adapter.pci is None or settable or rule is None or isinstance(rule.effect, Leave):
            continue
        yield Row(
            target=adapter.target,
            id=adapter.target,
            adapter=adapter.target,
            setting=COALESCING,
            current=None,
            wanted=rule.effect.value,
            value=None,
            state=State.FIXED if levers else State.ABSENT,
            limit="the driver sets it once" if levers else "the driver has no lever for it",
            why=rule.because,
            source=rule.source,
            rule=rule.name,
        )
