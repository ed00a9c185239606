"""Prints the vendors' advice beside a plan: what each asks for, and how the plan stands to it."""

from collections.abc import Sequence

from hbatune.cli.text.output import heading, say, show_table
from hbatune.cli.text.rows import fold, shown, target_names
from hbatune.cli.text.table import Table, identity, reasons, state, value
from hbatune.plan.advice import Advice, Stance

_COLUMNS = (
    identity("TARGET"),
    identity("SETTING"),
    value("NOW"),
    value("ADVISED"),
    state("STANCE"),
    reasons("WHY", stacked=True),
)
_STANCES = {
    Stance.AGREES: "agrees",
    Stance.OPEN: "open",
    Stance.CONFLICT: "conflict",
    Stance.FIXED: "fixed",
}


def show_advice(advice: Sequence[Advice], *, unfold: bool) -> None:
    """Print the advice that the plan does not meet, with ``unfold`` all of it; equal ones once."""
    told = [each for each in advice if unfold or each.stance is not Stance.AGREES]
    if not told:
        return
    heading("What vendors advise")
    table = Table(_COLUMNS)
    for targets, each in fold(told, _content):
        names = target_names([each.target] if unfold else targets)
        to_be = "as it is" if each.advised is None else str(each.advised)
        stance = _STANCES[each.stance]
        table.rows.append(
            [names, each.setting, shown(each.current), to_be, stance, advice_reasons(each)]
        )
    show_table(table)
    say()


def advice_reasons(advice: Advice) -> tuple[str, ...]:
    """Return what there is to say of an advice: conflict, limit, the vendor's reason, a note."""
    found = [f"{advice.vendor}: {advice.why} ({advice.source})"]
    if advice.against is not None:
        found.append(
            f"against rule {advice.against} of the profile, by which it is {advice.planned}"
        )
    if advice.limit is not None:
        found.append(f"here: {advice.limit}")
    if advice.note is not None:
        found.append(f"note: {advice.note}")
    return tuple(found)


def advice_line(advice: Advice) -> str:
    """Return an advice in one sentence."""
    to_be = "leave it as it is" if advice.advised is None else f"set it to {advice.advised}"
    first, *rest = advice_reasons(advice)
    return "; ".join((f"{to_be}: {_STANCES[advice.stance]}", first, *rest))


def _content(advice: Advice) -> object:
    return (advice.rule, advice.current, advice.value, advice.planned, advice.stance, advice.limit)
