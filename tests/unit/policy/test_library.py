"""Which files make up a profile, and which of them wins."""

from pathlib import Path

import pytest

from hbatune.facts.model import Medium, Protocol
from hbatune.policy.library import Library, list_profiles, load_profile
from hbatune.policy.match import Matcher, Traits
from hbatune.policy.profile import Exactly, Leave, Origin, ProbeSpec, Profile
from hbatune.policy.rules import check_part
from hbatune.policy.schema import RulesFile
from hbatune.policy.toml_files import PolicyError, read_toml
from tests.unit.site_folder import SiteFolder

SAS_SSD = Traits("mpt3sas", Protocol.SAS, Medium.SSD, vendor="SEAGATE", model="XS400")


def rule(name: str, value: int) -> str:
    return (
        f'[[rule]]\nname = "{name}"\nwhen = {{ vendor = "SEAGATE" }}\nsetting = "nr_requests"\n'
        f'value = {value}\nbecause = "measured"\nsource = "site"\n'
    )


def decided(profile: Profile) -> object:
    """Return what the profile makes of nr_requests on a SAS SSD."""
    return Matcher(profile).won(SAS_SSD)["nr_requests"].effect


def test_only_complete_profiles_are_selectable(site: SiteFolder) -> None:
    listed = list_profiles(site.library)
    assert [listing.name for listing in listed] == ["balanced", "latency", "oltp", "throughput"]
    assert {listing.origin for listing in listed} == {Origin.SHIPPED}
    assert all(listing.title for listing in listed)
    with pytest.raises(PolicyError, match="has no title, so it is a part"):
        site.load("base")


def test_later_rules_d_file_wins(site: SiteFolder) -> None:
    assert decided(site.load()) == Exactly(2048)
    for number in reversed(range(10, 40)):
        site.put(f"rules.d/{number}.toml", rule("mine", 100 + number))
    assert decided(site.load()) == Exactly(139)
    names = [rule.file[-7:-5] for rule in site.load().rules[-30:]]
    assert names == [str(number) for number in range(10, 40)]


def test_later_leave_removes_setting(site: SiteFolder) -> None:
    site.put("rules.d/x.toml", rule("mine", 512).replace("value = 512", "leave = true"))
    assert decided(site.load()) == Leave()


def test_doubtful_citation_leaves_setting(site: SiteFolder) -> None:
    doubtful = rule("mine", 512).replace('"site"', '"D0-1"') + rule("other", 512)
    doubtful += '[[objective]]\np99_ms = 2.0\nbecause = "we say so"\nsource = "D0-99"\n'
    doubtful += '[[option]]\nname = "qd"\nmodule = "lpfc"\noption = "lpfc_lun_queue_depth"\n'
    doubtful += 'value = 64\nbecause = "we say so"\nsource = "D0-2"\n'
    site.put("profiles/oltp.toml", f'title = "ours"\n{doubtful}')
    doubts: list[PolicyError] = []
    profile = load_profile("oltp", site.library, doubts=doubts)
    assert [rule.effect for rule in profile.rules] == [Leave(doubtful=True), Exactly(512)]
    assert (profile.objectives, profile.options) == ((), ())
    assert [error.hint is None for error in doubts] == [False, False, False]
    assert 'rule "mine": key `source`: D0-1 does not cover nr_requests' in str(doubts[0])
    with pytest.raises(PolicyError, match="D0-1 does not cover"):
        site.load()
    site.put("profiles/oltp.toml", 'title = "ours"\n')
    site.put("rules.d/x.toml", rule("mine", 512).replace('"site"', '"D0-99"'))
    profile = load_profile("oltp", site.library, doubts=doubts)
    assert decided(profile) == Leave(doubtful=True)


def test_site_profile_replaces_shipped(site: SiteFolder) -> None:
    path = site.put("profiles/oltp.toml", 'title = "ours"\n' + rule("mine", 512))
    profile = site.load()
    assert (profile.title, profile.origin, len(profile.rules)) == ("ours", Origin.SITE, 1)
    listed = {listing.name: listing for listing in list_profiles(site.library)}
    assert (listed["oltp"].origin, listed["oltp"].file) == (Origin.SITE, str(path))


def test_site_profile_may_extend_namesake(site: SiteFolder) -> None:
    shipped = site.load()
    text = 'title = "ours"\ninclude = ["oltp"]\n[probe]\ndepth = 8\n' + rule("mine", 512)
    site.put("profiles/oltp.toml", text)
    profile = site.load()
    assert profile.rules[:-1] == shipped.rules
    assert decided(profile) == Exactly(512)
    assert profile.objectives == shipped.objectives
    assert profile.probe == ProbeSpec(depth=8, source="site")


@pytest.mark.parametrize(("source", "message"), [("D9-9", "D9-9"), ("site: measured", None)])
def test_load_source_is_checked(site: SiteFolder, source: str, message: str | None) -> None:
    site.put("profiles/ours.toml", f'title = "ours"\n[probe]\nsource = "{source}"\n')
    if message is None:
        assert site.load("ours").probe == ProbeSpec(source=source)
        return
    with pytest.raises(PolicyError, match=message):
        site.load("ours")


def test_site_may_replace_shipped_part(site: SiteFolder) -> None:
    site.put("profiles/base.toml", rule("mine", 512))
    assert decided(site.load("balanced")) == Exactly(512)


def test_shipped_rule_cannot_cite_site(site: SiteFolder, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(rule("mine", 512))
    file = read_toml(tmp_path / "mine.toml")
    with pytest.raises(PolicyError, match='key `source`: found "site", expected the id'):
        check_part(file, Origin.SHIPPED, site.library.sources(), RulesFile)


def test_shipped_profile_reads_no_sources(
    site: SiteFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests check its citations, so `diff` need not read the largest file of the rules."""
    monkeypatch.setattr(Library, "sources", None)
    assert site.load("oltp").rules


def test_probe_is_inherited(site: SiteFolder) -> None:
    site.put("profiles/mine.toml", 'title = "mine"\ninclude = ["throughput"]\n')
    assert site.load("mine").probe == site.load("throughput").probe


def test_repeated_include_counts_once(site: SiteFolder) -> None:
    site.put("profiles/a.toml", 'include = ["base"]\n')
    site.put("profiles/mine.toml", 'title = "mine"\ninclude = ["base", "a"]\n')
    assert site.load("mine").rules == site.load("balanced").rules


@pytest.mark.parametrize("name", ["a", "b"])
def test_circular_include_is_refused(site: SiteFolder, name: str) -> None:
    site.put("profiles/a.toml", 'title = "a"\ninclude = ["b"]\n')
    site.put("profiles/b.toml", 'title = "b"\n\ninclude = ["base", "a"]\n')
    with pytest.raises(PolicyError, match=r"key `include`: goes in a circle: . → . → "):
        site.load(name)


@pytest.mark.parametrize("name", ["basic", "../oltp", "a/b", "sources"])
def test_missing_include_is_refused(site: SiteFolder, name: str) -> None:
    site.put("profiles/mine.toml", f'title = "mine"\ninclude = ["{name}"]\n')
    with pytest.raises(PolicyError, match=r"line 2: key `include`: found "):
        site.load("mine")


@pytest.mark.parametrize("name", ["oltpp", "sources", "../rules/oltp", "", "/etc/passwd", "a\n"])
def test_unknown_profile_lists_choices(site: SiteFolder, name: str) -> None:
    with pytest.raises(PolicyError) as caught:
        site.load(name)
    assert "only balanced, latency, oltp, throughput" in caught.value.message
    assert caught.value.exit_code == 2


def test_unknown_profile_suggests_nearest(site: SiteFolder) -> None:
    with pytest.raises(PolicyError) as caught:
        site.load("oltpp")
    assert caught.value.hint == 'did you mean "oltp"?'
