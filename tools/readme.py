"""Generate the README's tables: the settings of the profile ``oltp``, and the exit codes."""

from pathlib import Path

from hbatune.policy.library import Library, load_profile
from hbatune.policy.match import OverviewRow, build_overview
from hbatune.policy.profile import AtLeast, Exactly, Leave, Rule
from hbatune.shipped import find_shipped
from tools import exit_codes_page

README = Path(__file__).resolve().parents[1] / "README.md"
_SETTINGS = ("scheduler", "nr_requests", "queue_depth")


def table(name: str) -> str:
    """Return the Markdown table of a shipped profile's settings."""
    profile = load_profile(name, Library(find_shipped("rules"), site=Path("/nonexistent")))
    lines = [
        _head(),
        f"| --- | {' | '.join('---' for _ in _SETTINGS)} | --- |",
    ]
    for row in build_overview(profile):
        cells = [row.endpoint, *(cell(row, setting) for setting in _SETTINGS), goal(row)]
        lines.append(f"| {' | '.join(cells)} |".replace("|  |", "| |"))
    return "\n".join(lines)


def page() -> str:
    """Return the README with current tables. The table of exit codes is optional."""
    text = README.read_text(encoding="utf-8")
    assert _head() in text, "the README has lost its table"
    text = _replaced(text, _head(), table("oltp"))
    if exit_codes_page.HEAD in text:
        text = _replaced(text, exit_codes_page.HEAD, exit_codes_page.table())
    return text


def _replaced(text: str, head: str, table: str) -> str:
    """Return the text with the table of this head replaced."""
    before, _, remainder = text.partition(head)
    _, _, after = remainder.partition("\n\n")
    return f"{before}{table}\n\n{after}"


def _head() -> str:
    return f"| endpoint | {' | '.join(_SETTINGS)} | p99 objective |"


def goal(row: OverviewRow) -> str:
    """Return the row's objective with its source, or an empty text."""
    return f"{row.objective.p99_ms:g} ms ({row.objective.source})" if row.objective else ""


def cell(row: OverviewRow, setting: str) -> str:
    """Return the row's value of a setting, with the source."""
    rule = row.rules.get(setting)
    if rule is None or isinstance(rule.effect, Leave):
        return "as it is"
    if setting == "nr_requests" and _without_scheduler(row):
        return f"tag set ({rule.source})"
    return f"{_value(rule)} ({rule.source})"


def _without_scheduler(row: OverviewRow) -> bool:
    rule = row.rules.get("scheduler")
    return rule is not None and rule.effect == Exactly("none")


def _value(rule: Rule) -> str:
    if isinstance(rule.effect, AtLeast):
        return f"at least {rule.effect.value}"
    assert isinstance(rule.effect, Exactly)
    return f"`{rule.effect.value}`" if rule.setting == "scheduler" else str(rule.effect.value)
