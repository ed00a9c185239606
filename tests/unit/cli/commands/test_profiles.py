"""Tests of hbatune/cli/commands/profiles.py."""

import json
import re

import pytest

from hbatune.cli import main
from hbatune.policy.library import load_sources
from hbatune.shipped import find_shipped
from tests.unit.command_runs import See


def test_profiles_show_rule_sources(see: See, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profiles", "oltp"]) == 0
    output = capsys.readouterr().out
    assert "nr-requests" in output
    assert "D0-2" in output
    assert "05-50111-01 HBA Performance Report" in output
    assert "Load: 4K random reads, 24 in flight (D4-11)." in output
    assert main(["profiles"]) == 0
    assert set(load_sources(find_shipped("rules"))) <= set(
        re.findall(r"[A-Z]+[0-9]?-[A-Za-z0-9-]+", capsys.readouterr().out)
    )
    assert main(["profiles", "--json"]) == 0
    names = [entry["name"] for entry in json.loads(capsys.readouterr().out)["profiles"]]
    assert names == ["balanced", "latency", "oltp", "throughput"]
