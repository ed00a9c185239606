"""Tests of hbatune/cli/commands/config.py."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from hbatune.cli import main
from tests.unit.machines import endpoint, machine
from tests.unit.site_folder import SiteFolder

Run = Callable[..., tuple[int, str]]

RULE = """[[rule]]
name = "{name}"
setting = "nr_requests"
value = 1024
because = "we measured it"
source = "site"
when = {{ model = "{name}" }}
"""


@pytest.fixture
def hbatune(
    site: SiteFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Return a function that runs `config` and returns its exit code and output."""
    for command in ("config", "profiles"):
        name = f"hbatune.cli.commands.{command}.installed_library"
        monkeypatch.setattr(name, lambda: site.library)

    def run(*words: str) -> tuple[int, str]:
        code = main(["config", *words])
        printed = capsys.readouterr()
        return code, printed.out + printed.err

    return run


def show(hbatune: Run) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(hbatune("show", "--json")[1])
    return document


def list_mistakes(hbatune: Run) -> list[tuple[str, int | None, str]]:
    code, text = hbatune("check", "--json")
    mistakes = json.loads(text)["mistakes"]
    assert code == (2 if mistakes else 0)
    return [(entry["file"], entry["line"], entry["reason"]) for entry in mistakes]


def test_new_host_shows_no_values(hbatune: Run) -> None:
    assert hbatune("show") == (0, "No profile is active. Set here: 0 keys, 0 local rules.\n\n")
    assert {key["file"] for key in show(hbatune)["keys"]} == {None}
    assert show(hbatune)["files"] == []


def test_set_keys_show_their_lines(hbatune: Run, site: SiteFolder) -> None:
    text = 'profile = "oltp"\n\n[daemon]\ndrift = "report"\n[site]\nexclude = ["sdz"]\n'
    file = str(site.put("hbatune.toml", text))
    keys = {key["name"]: key for key in show(hbatune)["keys"]}
    places = {name: (key["value"], key["line"]) for name, key in keys.items() if key["file"]}
    expected = {"profile": ("oltp", 1), "daemon.drift": ("report", 4)}
    assert places == {**expected, "site.exclude": (["sdz"], 6)}
    assert keys["daemon.drift"]["default"] == "repair"
    assert keys["act.workers"] == {**keys["act.workers"], "value": 16, "file": None, "line": None}
    code, output = hbatune("show")
    assert code == 0
    assert output.startswith("Active profile: oltp. Set here: 3 keys, 0 local rules.\n")
    rows = [line.split() for line in output.splitlines()]
    assert ["site.exclude", '["sdz"]', "none", f"{file}:6"] in rows
    assert ["daemon.drift", "report", "repair", f"{file}:4"] in rows
    assert "act.workers" not in output
    assert "act.workers" in hbatune("show", "--all")[1]


def test_one_key_shows_its_value_and_line(hbatune: Run, site: SiteFolder) -> None:
    file = site.put("hbatune.toml", '\n[daemon]\ndrift = "report"\n')
    assert hbatune("show", "daemon.drift") == (0, f"daemon.drift = report ({file}:3)\n")
    assert hbatune("show", "act.workers") == (0, "act.workers = 16 (default)\n")
    [key] = json.loads(hbatune("show", "daemon.drift", "--json")[1])["keys"]
    assert (key["value"], key["line"]) == ("report", 3)
    code, text = hbatune("show", "daemon.drft")
    assert (code, "daemon.drift" in text) == (2, True), "the nearest key"
    assert hbatune("check", "daemon.drift")[0] == 2


def test_local_rules_show_their_lines(hbatune: Run, site: SiteFolder) -> None:
    rules = RULE.format(name="first") + RULE.format(name="second")
    file = str(site.put("rules.d/10.toml", rules))
    without_profile = show(hbatune)
    assert without_profile["files"] == []
    site.put("hbatune.toml", 'profile = "oltp"\n')
    assert show(hbatune)["rules"] == without_profile["rules"]
    shown = [(rule["name"], rule["file"], rule["line"]) for rule in show(hbatune)["rules"]]
    assert shown == [("first", file, 1), ("second", file, 8)]
    output = hbatune("show")[1]
    assert f"second  nr_requests  1024   {file}:8" in output
    assert show(hbatune)["files"][-1] == file


def test_valid_configuration_takes_one_sentence(hbatune: Run, site: SiteFolder) -> None:
    site.put("hbatune.toml", 'profile = "oltp"\n')
    site.put("rules.d/10.toml", RULE.format(name="first"))
    assert hbatune("check") == (0, f"The configuration in {site.root} is valid.\n")


def test_check_shows_all_errors(hbatune: Run, site: SiteFolder) -> None:
    text = 'profil = "oltp"\n[watch]\ncpu = 2\n[daemon.drift_of]\nqueue = "report"\n'
    config = str(site.put("hbatune.toml", text))
    second = RULE.format(name="second").replace("value", "valu")
    third = RULE.format(name="third").replace("nr_requests", "nr_request")
    fourth = RULE.format(name="fourth").replace('source = "site"', 'source = "D0-99"')
    rules = str(site.put("rules.d/10.toml", RULE.format(name="first") + second + third + fourth))
    broken = str(site.put("rules.d/20.toml", "rule = [\n"))
    profile = str(site.put("profiles/p.toml", 'title = "P"\ninclude = ["oltpp"]\n'))
    workload = str(site.put("workloads/w.toml", 'title = "W"\nsource = ["site"]\n'))
    mistakes = list_mistakes(hbatune)
    places = [(file, line) for file, line, _ in mistakes]
    assert places == [
        *((config, 1), (config, 3), (config, 5), (profile, 2)),
        *((rules, 11), (rules, 17), (rules, 27), (broken, 1)),
        *((workload, None), (workload, None), (workload, 2)),
    ]
    reasons = " ".join(reason for _, _, reason in mistakes)
    for text in ("profil", "cpu", '"queue"', "oltpp", "valu", "nr_request", "D0-99", "TOML"):
        assert text in reasons
    output = hbatune("check")[1]
    assert output.startswith("The configuration has 11 errors.\n")
    assert f'{config}:1: unknown key "profil"' in output
    assert '\n  did you mean "profile"?\n' in output


def test_unmatched_names_are_reported(
    hbatune: Run, site: SiteFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = machine(endpoint(target="sda"))
    name = "hbatune.cli.commands.config.gather_machine"
    monkeypatch.setattr(name, lambda attributes, deadline: host)
    site.put("hbatune.toml", '[site]\nexclude = ["sda", "sdz"]\n')
    code, output = hbatune("check")
    assert code == 1
    assert output.startswith(f"The configuration in {site.root} is valid.\n")
    assert "[site] exclude: 'sdz' does not match a disk or adapter of this machine" in output
    assert "'sda'" not in output
    site.put("hbatune.toml", '[site]\nexclude = ["sda"]\n')
    assert hbatune("check")[0] == 0


def test_contradicting_rules_are_one_error(hbatune: Run, site: SiteFolder) -> None:
    rules = RULE.format(name="first") + RULE.format(name="first")
    file = str(site.put("rules.d/10.toml", rules))
    [mistake] = list_mistakes(hbatune)
    assert mistake[:2] == (file, 8)


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ('# ours\nprofile = "oltpp"\n', 2, 'there is no profile "oltpp"'),
        ("[site.uses]\noracle = ['sda']\n", 2, 'unknown use "oracle"'),
    ],
)
def test_unknown_name_shows_its_line(
    hbatune: Run, site: SiteFolder, text: str, line: int, reason: str
) -> None:
    file = str(site.put("hbatune.toml", text))
    [mistake] = list_mistakes(hbatune)
    assert mistake[:2] == (file, line)
    assert reason in mistake[2]


def test_broken_configuration_names_its_remedy(hbatune: Run, site: SiteFolder) -> None:
    file = site.put("hbatune.toml", 'profile = "oltpp"\n')
    code, output = hbatune("show")
    assert code == 2
    assert output.startswith(f'hbatune: {file}: line 1: there is no profile "oltpp", only balanced')
    assert output.endswith('did you mean "oltp"? `hbatune config check` shows all errors\n')
