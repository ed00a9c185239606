"""An upgrade of hbatune: the rules of the last apply stay in effect until the next one."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from hbatune import shipped
from hbatune.agent.configuration import LastGoodConfiguration
from hbatune.cli import main
from hbatune.cli.commands.daemon import _load_policy
from hbatune.operations import boot_files
from hbatune.operations.context import Context
from hbatune.policy import library as libraries
from hbatune.policy import vendors
from hbatune.policy.config import load_configuration
from hbatune.policy.library import read_rules
from hbatune.policy.profile import Exactly, Profile
from hbatune.policy.toml_files import PolicyError
from hbatune.policy.vendors import load_chosen_profile
from tests.unit.cli.commands.test_apply import Bench
from tests.unit.cli.commands.test_apply import bench as bench_fixture
from tests.unit.site_folder import SiteFolder

RULES = """
title = "shipped"
[probe]
source = "D4-11"
[[rule]]
name = "merges"
setting = "rq_affinity"
value = {value}
because = "of version {value}"
source = "V-pure-rules"
"""
bench = bench_fixture
Capture = pytest.CaptureFixture[str]


class Release:
    """The shipped rules of one version at a time, with one profile for rq_affinity."""

    def __init__(self, folder: Path, site: SiteFolder, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.site, self.stored = folder, site, site.library.stored
        (folder / "vendors").mkdir(parents=True)
        for name in ("sources.toml", "arrays.toml", "yardsticks.toml"):
            (folder / name).write_bytes((shipped.find_shipped("rules") / name).read_bytes())
        self.upgrade(1)
        site.library = replace(site.library, shipped=folder)
        for module in ("status", "profiles", "config"):
            name = f"hbatune.cli.commands.{module}.installed_library"
            patch.setattr(name, lambda: site.library)
        site.put("hbatune.toml", 'profile = "fast"\n')

    def upgrade(self, value: int) -> None:
        (self.folder / "fast.toml").write_text(RULES.format(value=value))


@pytest.fixture
def release(
    bench: Bench, site: SiteFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Release:
    return Release(tmp_path / "rules", site, monkeypatch)


def find_value(profile: Profile | None) -> object:
    assert profile is not None
    [rule] = [rule for rule in profile.rules if rule.setting == "rq_affinity"]
    assert isinstance(rule.effect, Exactly)
    return rule.effect.value


def load_value(name: str | None = None) -> object:
    return find_value(load_chosen_profile(name, load_configuration()))


def apply() -> None:
    assert main(["apply", "--no-probe"]) == 0


def test_apply_copies_shipped_rules(release: Release) -> None:
    apply()
    stored = release.stored
    assert read_rules(stored) == read_rules(release.folder)
    assert stored.stat().st_mode & 0o777 == 0o755, "other users may run `status`"
    assert (stored / "fast.toml").stat().st_mode & 0o777 == 0o644
    assert load_chosen_profile(None, load_configuration()).files == (
        str(release.folder / "fast.toml"),
    )


def test_temporary_apply_copies_nothing(release: Release) -> None:
    assert main(["apply", "--no-probe", "--once"]) == 0
    assert not release.stored.exists()


def test_copy_belongs_to_active_profile(release: Release) -> None:
    apply()
    release.upgrade(2)
    assert (load_value(), load_value("fast")) == (1, 2), "a named profile has the shipped rules"
    (release.folder / "other.toml").write_text(RULES.format(value=0))
    release.site.put("hbatune.toml", 'profile = "other"\n')
    with pytest.raises(PolicyError, match="only fast") as caught:
        load_value()
    assert "`sudo hbatune apply`" in (caught.value.remedy or "")
    apply()
    assert load_value() == 0


def test_local_rules_are_present_ones(release: Release) -> None:
    apply()
    release.upgrade(2)
    release.site.put(
        "rules.d/x.toml",
        '[[rule]]\nname = "x"\nsetting = "nomerges"\nvalue = 2\nbecause = "b"\nsource = "site"\n',
    )
    profile = load_chosen_profile(None, load_configuration())
    assert [rule.setting for rule in profile.rules] == ["rq_affinity", "nomerges"]
    assert find_value(profile) == 1


def test_followed_vendor_rules_are_kept(release: Release) -> None:
    file = release.folder / "vendors" / "v.toml"
    text = (
        RULES.partition("[[rule]]")[2].format(value=1).replace('name = "merges"', 'name = "advice"')
    )
    file.write_text('vendor = "V"\n[[rule]]' + text)
    release.site.put("hbatune.toml", 'profile = "fast"\n[site]\nvendors = "follow"\n')
    vendors.load_vendors.cache_clear()
    apply()
    file.unlink()
    vendors.load_vendors.cache_clear()
    profile = load_chosen_profile(None, load_configuration())
    assert [rule.name for rule in profile.rules] == ["merges", "advice"]
    assert len(load_chosen_profile("fast", load_configuration()).rules) == 1


@pytest.mark.parametrize("damaged", ["{", "", "[[rule]]", None])
def test_damaged_copy_is_an_error_that_apply_repairs(
    damaged: str | None, release: Release, bench: Bench, capsys: Capture
) -> None:
    apply()
    release.upgrade(2)
    file = release.stored / "fast.toml"
    if damaged is None:
        file.unlink()
    else:
        file.write_text(damaged)
    capsys.readouterr()
    for command in ("diff", "check", "config check", "profiles --changes", "explain sda"):
        assert main(command.split()) == 2
        shown = "".join(capsys.readouterr())
        assert str(release.stored) in shown, command
        assert "`sudo hbatune apply` stores the rules of this version instead" in shown
    main(["status"])
    assert str(release.stored) in capsys.readouterr().out.replace("\n", "")
    assert main(["rollback", "sda"]) == 0
    apply()
    assert main(["diff"]) == 0
    assert bench.values("rq_affinity")[1] == 2


def test_damaged_limits_of_arrays_are_an_error(release: Release, capsys: Capture) -> None:
    apply()
    release.upgrade(2)
    (release.stored / "arrays.toml").write_text("[[array]]")
    assert main(["diff"]) == 2
    assert "`sudo hbatune apply` stores" in capsys.readouterr().err
    apply()
    assert main(["diff"]) == 0


def test_limits_of_arrays_stay_until_apply(release: Release) -> None:
    apply()
    release.upgrade(2)
    file = release.folder / "arrays.toml"
    file.write_text(file.read_text().replace("lun_depth = ", "lun_depth = 1"))
    config = load_configuration()
    libraries.load_cited.cache_clear()
    stored, shipped = (
        vendors.find_library(load_chosen_profile(name, config)).arrays()[0].lun_depth
        for name in (None, "fast")
    )
    assert shipped == int(f"1{stored}")


def test_unwritable_copy_is_reported(
    release: Release, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    apply()
    release.upgrade(2)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("hbatune.act.files.replace", refuse)
        context = Context(lock=lambda: pytest.fail("it needs no lock"), note=lambda _: None)
        assert not boot_files.store_shipped_rules(context)
    assert not release.stored.exists(), "the older copy would undo the apply"
    assert load_value() == 2


def test_upgrade_keeps_rules_until_apply(
    release: Release,
    bench: Bench,
    capsys: Capture,
) -> None:
    apply()
    daemon = LastGoodConfiguration(release.site.root, _load_policy)
    assert main(["profiles", "--changes"]) == 0
    assert "This version's rules change no setting of profile fast" in capsys.readouterr().out
    release.upgrade(2)
    daemon.refresh(force=True)
    assert find_value(daemon.policy.profile) == 1, "as before the upgrade"
    capsys.readouterr()
    assert main(["diff"]) == 0
    assert "the rules of the last `apply` are in effect" in capsys.readouterr().err
    assert main(["diff", "--profile", "fast"]) == 1
    assert "last `apply`" not in capsys.readouterr().err
    before = main(["status"])
    text = " ".join(capsys.readouterr().out.split())
    assert "this version's rules change 2 settings; `hbatune profiles --changes`" in text
    assert main(["status", "--json"]) == before
    assert json.loads(capsys.readouterr().out)["rule_changes"] == 2
    assert main(["profiles", "--changes"]) == 1
    text = " ".join(capsys.readouterr().out.split())
    assert "Profile fast: 2 to change." in text
    assert "sda sdb rq_affinity 1 2 drift of version 2 (V-pure-rules)" in text
    assert main(["profiles", "--changes", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    rows = [(row["target"], row["current"], row["value"], row["why"]) for row in document["rows"]]
    assert rows == [("sda", 1, 2, "of version 2"), ("sdb", 1, 2, "of version 2")]
    assert bench.values("rq_affinity") == [1, 1]
    apply()
    assert bench.values("rq_affinity") == [2, 2]
    assert daemon.refresh(force=True), "`apply` reloads the daemon"
    assert find_value(daemon.policy.profile) == 2
    assert main(["status"]) == before
    assert main(["profiles", "--changes"]) == 0


def test_rollback_keeps_copy(release: Release) -> None:
    apply()
    assert main(["rollback"]) == 0
    assert release.stored.exists()


def test_changes_concern_active_profile(release: Release, capsys: Capture) -> None:
    assert main(["profiles", "fast", "--changes"]) == 2
    release.site.put("hbatune.toml", "")
    assert main(["profiles", "--changes"]) == 0
    assert "No profile is active" in capsys.readouterr().out
    assert main(["profiles", "--changes", "--json"]) == 2
