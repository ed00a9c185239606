"""The pages for users: every command is one, every file is one, and every key of a rule is told."""

import re
from enum import StrEnum

import pytest
from msgspec import Struct

from hbatune.cli import COMMANDS
from hbatune.cli.parser import make_full_parser
from hbatune.facts.model import Kind, Medium, Protocol
from hbatune.policy.config import load_config
from hbatune.policy.library import load_profile
from hbatune.policy.profile import LinkMatch, Match, Multipath, Objective, ProbeSpec, Tolerance
from hbatune.policy.schema import RuleTable
from hbatune.probe.workloads import find_workload
from tests.pages import DOCS, commands, configurations, mentioned, pages
from tests.unit.site_folder import SiteFolder

RULES_PAGE = DOCS / "write-your-first-rule.md"
SHOWN = [
    pytest.param(words, id=f"{page.name}: {' '.join(words)}")
    for page in pages()
    for words in (*commands(page), *mentioned(page))
]


@pytest.mark.parametrize("words", SHOWN)
def test_documented_commands_parse(words: list[str]) -> None:
    if len(words) > 1:
        make_full_parser().parse_args([argument.strip("[]") for argument in words])
    else:  # the command as such is spoken of
        assert words[0] in (*COMMANDS, "--version", "--help")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(configuration, id=page.name)
        for page in pages()
        for configuration in configurations(page)
    ],
)
def test_documented_configurations_load(site: SiteFolder, text: str) -> None:
    if "[[run]]" in text:
        site.put("workloads/own.toml", text)
        assert find_workload("own", site.library).runs
    elif text.lstrip().startswith("title"):
        site.put("profiles/own.toml", text)
        assert site.load("own").title
    elif text.lstrip().startswith("[["):
        site.put("rules.d/own.toml", text)
        names = set(re.findall(r'^name = "(.*)"', text, re.MULTILINE))
        profile = load_profile("oltp", site.library)
        rules = {rule.name for rule in profile.rules}
        assert names <= rules | {option.name for option in profile.options}
    else:
        site.put("hbatune.toml", text)
        load_config(site.library)


@pytest.mark.parametrize("shape", [RuleTable, Match, Objective, ProbeSpec, Tolerance, LinkMatch])
def test_rules_page_lists_every_key(shape: type[Struct]) -> None:
    page = RULES_PAGE.read_text()
    missing = [key for key in shape.__struct_fields__ if not re.search(rf"\b{key}\b", page)]
    assert not missing


@pytest.mark.parametrize("words", [Protocol, Medium, Kind, Multipath])
def test_rules_page_lists_condition_values(words: type[StrEnum]) -> None:
    page = RULES_PAGE.read_text()
    assert not [member.value for member in words if f"`{member.value}`" not in page]


def test_pages_install_no_public_package() -> None:
    for page in pages():
        packages = re.findall(r"pip3? install (\S+)", page.read_text())
        assert all(package.strip("'\"`").startswith((".", "/", "-")) for package in packages), (
            page.name
        )
