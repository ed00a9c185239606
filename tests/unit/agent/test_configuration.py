"""What events mean, when a fight is given up, and what a configuration is worth."""

import os
from pathlib import Path

import pytest

from hbatune.agent.configuration import LastGoodConfiguration, Policy
from hbatune.errors import UsageError
from hbatune.policy.config import Config
from hbatune.policy.rules import Doubts
from hbatune.policy.toml_files import PolicyError


def test_permission_change_reloads_configuration(tmp_path: Path) -> None:
    site = Site(tmp_path)
    last_good = LastGoodConfiguration(tmp_path, site.load)
    site.file.write_text("another")
    os.utime(site.file, ns=(1, 1))
    last_good.refresh()
    calls: list[str] = []
    last_good._load = lambda _: calls.append("read") or site.load(None)  # type: ignore[func-returns-value]
    site.file.chmod(0o600)
    last_good.refresh()
    assert calls == ["read"]
    last_good.refresh(force=True)
    assert calls == ["read", "read"]


class Site:
    """A folder of configuration, and what reading it gives."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "hbatune.toml"
        self.file.write_text("one")
        self.doubt: PolicyError | None = None

    def load(self, doubts: Doubts) -> Policy:
        text = self.file.read_text()
        if text == "nonsense":
            raise UsageError("it makes no sense")
        if self.doubt is not None:
            if doubts is None:
                raise self.doubt
            doubts.append(self.doubt)
        return Policy(Config(profile=text), None)


def test_mistake_keeps_last_configuration(tmp_path: Path) -> None:
    site = Site(tmp_path)
    last_good = LastGoodConfiguration(tmp_path, site.load)
    assert not last_good.refresh()
    site.file.write_text("nonsense")
    assert not last_good.refresh()
    assert (last_good.policy.config.profile, str(last_good.mistake)) == ("one", "it makes no sense")
    site.file.write_text("another")
    assert last_good.refresh()
    assert (last_good.policy.config.profile, last_good.mistake) == ("another", None)


def test_unchanged_configuration_is_ignored(tmp_path: Path) -> None:
    site = Site(tmp_path)
    last_good = LastGoodConfiguration(tmp_path, site.load)
    (tmp_path / "rules.d").mkdir()
    (tmp_path / "rules.d" / "mine.toml").write_text("x")
    assert not last_good.refresh(), "what it says is the same"
    os.utime(site.file, ns=(1, 1))
    assert not last_good.refresh()


def test_first_configuration_may_be_doubtful(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.doubt = PolicyError("D0-2 does not cover it")
    last_good = LastGoodConfiguration(tmp_path, site.load)
    assert (last_good.doubts, last_good.mistake) == ([site.doubt], None)
    site.file.write_text("another")
    assert not last_good.refresh(), "an edit of a running daemon is not half active"
    assert (last_good.doubts, last_good.mistake) == ([site.doubt], site.doubt)
    site.doubt = None
    assert last_good.refresh(force=True)
    assert (last_good.doubts, last_good.mistake) == ([], None)


def test_bad_first_configuration_fails(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.file.write_text("nonsense")
    with pytest.raises(UsageError):
        LastGoodConfiguration(tmp_path, site.load)
