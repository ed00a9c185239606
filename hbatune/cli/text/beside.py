"""A result in words beside what the profile asks for, what the documents measured, and the link."""

from collections.abc import Iterator

from hbatune.cli.text.before_after import digits
from hbatune.facts.model import Machine
from hbatune.policy.load import installed_library
from hbatune.policy.model import Profile
from hbatune.probe.comparison import Goal, Headroom, LinkShare, Standing, compare_result
from hbatune.probe.knee import Knee
from hbatune.probe.model import ProbeResult
from hbatune.probe.selection import subjects_of


def stands(result: ProbeResult, machine: Machine, profile: Profile | None) -> Standing | None:
    """Return how a result stands on this machine, None where its disk is gone."""
    subject = next(
        (s for s in subjects_of(machine, {result.target}) if s.target == result.target), None
    )
    if subject is None:
        return None
    return compare_result(result, subject, profile, installed_library().yardsticks())


def standing_lines(result: ProbeResult, found: Standing, profile: str) -> Iterator[str]:
    """Yield a line each for the objective, for the documents and for the link, where known."""
    if found.goal is not None:
        yield f"{result.target}: {_goal(found.goal, profile)}."
    if found.document is not None:
        yield f"{result.target}: {_document(result, found)}."
    for link in found.links:
        yield f"{result.target}: {_link(link)}."


def knee_line(knee: Knee) -> str:
    """Say where the knee is, how sure that is, and what lies past it."""
    if knee.past is None or knee.iops is None or knee.p99 is None:
        return f"no knee up to depth {knee.depth}: more depth may still buy IOPS"
    unsure = f" (it may be anywhere from {knee.low} to {knee.high})"
    return (
        f"past depth {knee.depth} you buy {_more(knee.iops)} IOPS for {_more(knee.p99)} p99"
        f"{unsure if knee.low < knee.high else ''}"
    )


def _more(share: float) -> str:
    percent = f"{abs(share):.0%}".replace("%", " %")
    return f"{percent} {'more' if share >= 0 else 'less'}"


def _goal(goal: Goal, profile: str) -> str:
    spare = f"{abs(goal.spare):.0%}".replace("%", " %")
    words = {
        Headroom.MISSED: f"missed by {spare}",
        Headroom.SCANT: f"met, but with only {spare} to spare where 20 to 40 % are wise (D0-9)",
        Headroom.ENOUGH: f"met, with {spare} to spare",
        Headroom.AMPLE: f"met, with {spare} to spare, more than the 20 to 40 % of D0-9",
    }
    return (
        f"p99 is {digits(goal.measured_ms)} ms; {profile} wants at most {goal.p99_ms:g} ms "
        f"({goal.source}): {words[goal.headroom]}"
    )


def _document(result: ProbeResult, found: Standing) -> str:
    figures, document = result.figures, found.document
    assert document is not None
    here = "/".join(digits(us / 1000) for us in (figures.p95_us, figures.p99_us, figures.p999_us))
    there = f"{document.p95_ms:g}/{document.p99_ms:g}/{document.p999_ms:g}"
    depth = "" if found.same_depth else f", measured at depth {document.depth}"
    return (
        f"p95/p99/p99.9 of {here} ms and {digits(figures.iops)} IOPS at depth "
        f"{result.workload.issued}, beside {there} ms and {document.iops[0]} to "
        f"{document.iops[1]} IOPS on such a medium ({document.source}{depth})"
    )


def _link(link: LinkShare) -> str:
    text = (
        f"{digits(link.measured)} GB/s, {link.used:.0%} of what the link of {link.adapter} "
        f"carries ({digits(link.ceiling)} GB/s)"
    ).replace("%", " %")
    if link.document is not None:
        text += f"; an adapter on such a link gave {digits(link.document)} ({link.source})"
    return text
