"""Checks against what vendors ask for, where the site wants to see it."""

from collections.abc import Iterator

from msgspec.structs import replace

from hbatune.checks.model import Check, CheckInput, Finding, Severity
from hbatune.plan.advice import Stance


def find_advice(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find advice that is not met: worth knowing, and advice where the profile contradicts it."""
    for each in seen.advice:
        if each.stance is Stance.AGREES:
            continue
        conflict = each.stance is Stance.CONFLICT
        found = check.found(
            Severity.ADVICE if conflict else Severity.INFO,
            each.target,
            vendor=each.vendor,
            rule=each.rule,
            setting=each.setting,
            current=each.current,
            # None is to leave it as it is.
            advised=each.current if each.advised is None else each.advised,
            planned=each.planned if conflict else None,
            against=each.against,
            limit=each.limit,
            note=each.note,
            open=each.setting if each.stance is Stance.OPEN else None,
        )
        yield replace(found, adapter=each.adapter, source=each.source)
