"""The README and the pages for users tell the truth about commands, profiles and settings."""

import re
from pathlib import Path

import pytest

from hbatune.cli import COMMANDS
from hbatune.policy.config import WatchConfig, load_config
from hbatune.policy.library import load_profile
from tests.lab.image import DEBIAN_12_KERNELS
from tests.lab.newest import load_last_good, series_of
from tests.pages import README
from tests.unit.site_folder import SiteFolder

PROFILES = ("oltp", "latency", "throughput", "balanced")


def blocks(document: Path) -> list[str]:
    """Return the indented text of each section of a document."""
    sections = re.split(r"^#+ .*$", document.read_text(), flags=re.MULTILINE)
    code_blocks = [
        [line[4:] for line in part.splitlines() if line.startswith("    ")] for part in sections
    ]
    return ["\n".join(lines) for lines in code_blocks if lines]


def test_documented_configuration_loads(site: SiteFolder) -> None:
    configuration, firmware, options = blocks(README.parent / "docs/configuration.md")
    site.put("hbatune.toml", firmware)
    assert load_config(site.library).site.adapter["0000:03:00.0"].firmware == "read"
    site.put("hbatune.toml", configuration)
    site.put("rules.d/options.toml", options)
    assert load_config(site.library).site.exclude == ("wwn-0x5000c500a1b2c3d4", "0000:03:00.0")
    profile = load_profile("oltp", site.library)
    assert "deeper-nvme" in {option.name for option in profile.options}


def test_documented_watch_matches_defaults(site: SiteFolder) -> None:
    *_, alerts, metrics = blocks(README.parent / "docs/watch.md")
    site.put("hbatune.toml", f"{alerts}\n{metrics}")
    config = load_config(site.library)
    assert config.watch == WatchConfig()
    assert set(re.findall(r"^(\w+) =", alerts, re.MULTILINE)) == set(WatchConfig.__struct_fields__)
    assert config.metrics.textfile == "/var/lib/prometheus/node-exporter"


@pytest.mark.parametrize("profile", PROFILES)
def test_readme_names_all_profiles(profile: str) -> None:
    assert f"`{profile}`" in README.read_text()


@pytest.mark.parametrize("command", COMMANDS)
def test_readme_names_all_commands(command: str) -> None:
    assert f"hbatune {command}" in README.read_text()


def test_readme_names_tested_kernels() -> None:
    *series, last = (*DEBIAN_12_KERNELS, series_of(load_last_good()))
    sentence = f"It is tested on Debian's kernels {', '.join(series)} and {last}."
    assert sentence in " ".join(README.read_text().split())
