"""The README tells the truth: its table is what the shipped rules say.

``python -m tests.unit.test_readme`` prints the table as it should be.
"""

import re
from pathlib import Path

import pytest

from hbatune.cli import COMMANDS
from hbatune.policy.config import WatchConfig, load_config
from hbatune.policy.load import Library, load_profile
from hbatune.policy.match import OverviewRow, overview
from hbatune.policy.model import AtLeast, Exactly, Leave, Rule
from hbatune.shipped import shipped
from tests.unit.policy_site import SiteFolder

README = Path(__file__).resolve().parents[2] / "README.md"
SETTINGS = ("scheduler", "nr_requests", "queue_depth")
PROFILES = ("oltp", "latency", "throughput", "balanced")


def cell(row: OverviewRow, setting: str) -> str:
    rule = row.rules.get(setting)
    if rule is None:
        return "as it is"
    if setting == "nr_requests" and _without_scheduler(row):
        return f"tag set ({rule.source})"
    return f"{_value(rule)} ({rule.source})" if not isinstance(rule.effect, Leave) else "as it is"


def _without_scheduler(row: OverviewRow) -> bool:
    rule = row.rules.get("scheduler")
    return rule is not None and rule.effect == Exactly("none")


def _value(rule: Rule) -> str:
    if isinstance(rule.effect, AtLeast):
        return f"at least {rule.effect.value}"
    assert isinstance(rule.effect, Exactly)
    return f"`{rule.effect.value}`" if rule.setting == "scheduler" else str(rule.effect.value)


def table(name: str) -> list[str]:
    profile = load_profile(name, Library(shipped("rules"), site=Path("/nonexistent")))
    lines = [
        f"| endpoint | {' | '.join(SETTINGS)} | p99 objective |",
        f"| --- | {' | '.join('---' for _ in SETTINGS)} | --- |",
    ]
    for row in overview(profile):
        goal = f"{row.objective.p99_ms:g} ms ({row.objective.source})" if row.objective else ""
        cells = [row.endpoint, *(cell(row, setting) for setting in SETTINGS), goal]
        lines.append(f"| {' | '.join(cells)} |".replace("|  |", "| |"))
    return lines


def test_the_readme_prints_what_oltp_sets() -> None:
    assert "\n".join(table("oltp")) in README.read_text()


def blocks(document: Path) -> list[str]:
    """Return the indented blocks of a document that stand under one heading each."""
    sections = re.split(r"^#+ .*$", document.read_text(), flags=re.MULTILINE)
    found = [
        [line[4:] for line in part.splitlines() if line.startswith("    ")] for part in sections
    ]
    return ["\n".join(lines) for lines in found if lines]


def test_the_configuration_that_is_shown_is_one(site: SiteFolder) -> None:
    configuration, options = blocks(README.parent / "docs/configuration.md")
    site.put("hbatune.toml", configuration)
    site.put("rules.d/options.toml", options)
    assert load_config(site.library).site.exclude == ("sda", "0000:03:00.0")
    profile = load_profile("oltp", site.library)
    assert "deeper-nvme" in {each.name for each in profile.options}


def test_the_watch_is_shown_with_its_defaults(site: SiteFolder) -> None:
    _, alerts, metrics = blocks(README.parent / "docs/watch.md")
    site.put("hbatune.toml", f"{alerts}\n{metrics}")
    config = load_config(site.library)
    assert config.watch == WatchConfig()
    assert set(re.findall(r"^(\w+) =", alerts, re.MULTILINE)) == set(WatchConfig.__struct_fields__)
    assert config.metrics.listen == "127.0.0.1:9925"


@pytest.mark.parametrize("profile", PROFILES)
def test_the_readme_names_every_profile(profile: str) -> None:
    assert f"`{profile}`" in README.read_text()


@pytest.mark.parametrize("command", COMMANDS)
def test_the_readme_names_every_command(command: str) -> None:
    assert f"hbatune {command}" in README.read_text()


if __name__ == "__main__":
    print("\n".join(table("oltp")))
