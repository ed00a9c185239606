"""`[[option]]` tables: of what families declare, and every mistake told."""

import pytest

from hbatune.facts.families import known_options
from hbatune.policy import rules
from hbatune.policy.profile import AtLeast, AtMost, Exactly
from hbatune.policy.rules import describe_allowed
from hbatune.policy.toml_files import PolicyError
from tests.unit.site_folder import SiteFolder

PROFILES = ("oltp", "latency", "throughput")


def option(text: str, module: str = "mpt3sas", name: str = "perf_mode") -> str:
    return (
        f'[[option]]\nname = "own"\nmodule = "{module}"\noption = "{name}"\n'
        f'because = "tested"\nsource = "site"\n{text}\n'
    )


@pytest.mark.parametrize(
    ("text", "effect"),
    [
        ("value = 2", Exactly(2)),
        ("value = true", Exactly(1)),
        ("value = -1", Exactly(-1)),
        ("at_least = 1", AtLeast(1)),
        ("at_most = 1", AtMost(1)),
    ],
)
def test_site_can_request_option(
    site: SiteFolder, text: str, effect: Exactly | AtLeast | AtMost
) -> None:
    site.put("rules.d/own.toml", option(text))
    loaded_option = site.load().options[-1]
    assert (loaded_option.setting, loaded_option.effect) == ("mpt3sas.perf_mode", effect)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (option("value = 3"), 'line 7: option "own": key `value`: found 3, expected an integer'),
        (option("value = 'a b'"), "expected a number or a word"),
        (option(""), "exactly one of `value`, `at_least` and `at_most`"),
        (option("value = 1\nat_least = 1"), "exactly one of"),
        (option("value = 1", name="perf_mod"), 'key `option`: found "perf_mod"'),
        (option("value = 1", module="mpt4sas"), 'key `module`: found "mpt4sas"'),
        (option("value = 1").replace('"site"', '"D9-9"'), 'key `source`: found "D9-9"'),
        (option("leave = true"), 'unknown key "leave"'),
    ],
)
def test_option_error_names_place(site: SiteFolder, text: str, message: str) -> None:
    site.put("rules.d/own.toml", text)
    with pytest.raises(PolicyError) as raised:
        site.load()
    assert message in raised.value.message


@pytest.mark.parametrize("name", PROFILES)
def test_shipped_options_are_cited_and_legal(site: SiteFolder, name: str) -> None:
    options = site.load(name).options
    assert {option.source for option in options} == {"D0-3", "D4-2", "D4-3", "K-threaded-isr-poll"}
    for option in options:
        declared = known_options()[option.module][option.option]
        assert describe_allowed(declared, option.effect.value) is None
    assert len({option.setting for option in options}) == len(options)


def test_shipped_options_import_no_family(
    site: SiteFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests check them, so `diff` imports only the families of the machine's adapters."""
    monkeypatch.setattr(rules, "family_named", None)
    assert site.load("oltp").options


def test_balanced_requests_no_option(site: SiteFolder) -> None:
    assert not site.load("balanced").options
