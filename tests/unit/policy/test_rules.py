"""Every mistake in a file of rules is told with its file, line, key, what was found and allowed."""

import pytest
from msgspec.structs import replace

from hbatune.facts.model import TargetKind
from hbatune.policy.match import build_adapter_traits, is_match
from hbatune.policy.profile import Tolerance
from hbatune.policy.toml_files import PolicyError
from tests.unit.machines import adapter
from tests.unit.site_folder import SiteFolder

RULE = """\
# a comment
[[rule]]
name = "first"
setting = "queue_depth"
at_least = 8
because = "we measured it"
source = "site"

[[rule]]
name = "mine"
when = { protocol = "sas", medium = "ssd" }
setting = "nr_requests"
value = 1024
because = "we measured it"
source = "site"
"""


def test_valid_file_appends_rules(site: SiteFolder) -> None:
    site.put("rules.d/x.toml", RULE)
    assert [rule.name for rule in site.load().rules[-2:]] == ["first", "mine"]


def test_empty_file_is_valid(site: SiteFolder) -> None:
    before = site.load().rules
    site.put("rules.d/x.toml", "")
    assert site.load().rules == before


MISTAKES = {
    "value as text": (
        "value = 1024",
        'value = "1024"',
        ['line 13: rule "mine": key `value`', 'found "1024", expected an integer from 4 to 2048'],
    ),
    "value out of range": (
        "value = 1024",
        "value = 4096",
        ["line 13", "key `value`", "found 4096, expected an integer from 4 to 2048"],
    ),
    "value of a wrong type": (
        "value = 1024",
        "value = 1.5",
        ["line 13", "key `value`", "found 1.5, expected true or false or an integer or text"],
    ),
    "at_least as text": (
        "at_least = 8",
        'at_least = "8"',
        ['line 5: rule "first": key `at_least`: found "8", expected an integer'],
    ),
    "at_least for a text": (
        'setting = "queue_depth"',
        'setting = "scheduler"',
        ["line 5", "key `at_least`", "found 8, expected one of none, mq-deadline"],
    ),
    "unknown setting": (
        'setting = "nr_requests"',
        'setting = "nr_request"',
        [
            'line 12: rule "mine": key `setting`: found "nr_request"',
            "expected one of add_random, async_depth, coalescing, coalescing_exempt",
            'did you mean "nr_requests"?',
        ],
    ),
    "unknown key": (
        "value = 1024",
        "vlaue = 1024",
        ['line 13: rule "mine": unknown key "vlaue", expected name', 'did you mean "value"?'],
    ),
    "unknown table": (
        "# a comment",
        "[[rules]]\nname = 'x'",
        ['line 1: unknown key "rules", expected rule, objective or option', 'did you mean "rule"?'],
    ),
    "unknown condition": (
        'protocol = "sas"',
        'protocl = "sas"',
        ['line 11: rule "mine": unknown key "protocl"', 'did you mean "protocol"?'],
    ),
    "condition outside its words": (
        'protocol = "sas"',
        'protocol = ["nvme", "sass"]',
        ["line 11", "key `protocol`", 'found "sass", expected nvme, sas, sata, fc, iscsi'],
    ),
    "a single word outside its words": (
        'medium = "ssd"',
        'medium = "flash"',
        ["line 11", "key `medium`", 'found "flash", expected nvme, ssd, hdd or unknown'],
    ),
    "empty condition": (
        'protocol = "sas"',
        "protocol = []",
        ["line 11", "key `protocol`", "found [], expected a list"],
    ),
    "tri_mode as text": (
        'protocol = "sas"',
        'tri_mode = "yes"',
        ["line 11", "key `tri_mode`", 'found "yes", expected true or false'],
    ),
    "no such link": (
        'protocol = "sas"',
        "link = { gen = 9 }",
        ["line 11", "key `gen`", "found 9, expected an integer from 1 to 7"],
    ),
    "unknown key of a link": (
        'protocol = "sas"',
        "link = { speed = 8 }",
        ["line 11", 'unknown key "speed", expected gen or width'],
    ),
    "when is no table": (
        'when = { protocol = "sas", medium = "ssd" }',
        'when = "sas"',
        ["line 11", "key `when`", 'found "sas", expected a table with family'],
    ),
    "nothing to set": (
        "value = 1024",
        "",
        ['line 9: rule "mine": found none of them, expected exactly one of `value`'],
    ),
    "two things to set": (
        "value = 1024",
        "value = 1024\nleave = true",
        ['line 9: rule "mine": found `value` and `leave`, expected exactly one'],
    ),
    "leave = false": (
        "value = 1024",
        "leave = false",
        ["line 13", "key `leave`", "found false, expected true"],
    ),
    "no because": (
        'because = "we measured it"\nsource = "site"\n\n',
        'source = "site"\n\n',
        ['line 2: rule "first": key `because`: found none, expected 1 to 4096 characters'],
    ),
    "empty because": (
        'value = 1024\nbecause = "we measured it"',
        'value = 1024\nbecause = ""',
        ["line 14", "key `because`", 'found "", expected 1 to 4096 characters'],
    ),
    "no name": (
        'name = "mine"\n',
        "",
        ["line 9: rule number 2: key `name`: found none, expected a name of letters"],
    ),
    "a name that is no name": (
        'name = "mine"',
        'name = "../mine"',
        ['line 10: rule "../mine": key `name`: found "../mine", expected a name of letters'],
    ),
    "a name twice": (
        'name = "mine"',
        'name = "first"',
        ['line 9: rule "first": this name is taken by the rule on line 2'],
    ),
    "unknown source": (
        'source = "site"\n\n',
        'source = "D0-99"\n\n',
        ['line 7: rule "first": key `source`: found "D0-99", expected the id of a shipped source'],
    ),
    "source of another setting": (
        'source = "site"\n\n',
        'source = "D0-2"\n\n',
        [
            'line 7: rule "first": key `source`: D0-2 does not cover queue_depth',
            "`hbatune explain D0-2` shows its settings",
        ],
    ),
    "include in rules.d": (
        "# a comment",
        'include = ["oltp"]',
        ['line 1: unknown key "include", expected rule, objective or option'],
    ),
    "not TOML": (
        "value = 1024",
        "value = = 1024",
        ["line 13: not valid TOML"],
    ),
    "rule as one table": (
        RULE,
        "[rule]\nname = 'x'\n",
        ["line 1: key `rule`: found a table, expected a list"],
    ),
}


@pytest.mark.parametrize(("good", "bad", "fragments"), MISTAKES.values(), ids=MISTAKES.keys())
def test_rule_error_names_place(
    site: SiteFolder, good: str, bad: str, fragments: list[str]
) -> None:
    assert good in RULE
    path = site.put("rules.d/x.toml", RULE.replace(good, bad, 1))
    with pytest.raises(PolicyError) as caught:
        site.load()
    message = f"{caught.value.message}\n{caught.value.hint}"
    assert message.startswith(f"{path}: ")
    for fragment in fragments:
        assert fragment in message
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("first", "again"),
    [
        ('medium = "ssd", protocol = "sas"', 'protocol = ["sas"], medium = "ssd"'),
        ('medium = ["ssd", "hdd"]', 'medium = ["hdd", "ssd"]'),
        ("link = { gen = 1 }", "link = { gen = [1] }"),
    ],
)
def test_equal_conditions_contradict_in_file(site: SiteFolder, first: str, again: str) -> None:
    text = RULE.replace('protocol = "sas", medium = "ssd"', first)
    second = text[text.index('[[rule]]\nname = "mine"') :]
    second = second.replace('"mine"', '"again"').replace(first, again)
    site.put("rules.d/x.toml", text + second)
    site.load()  # the same again contradicts nothing
    site.put("rules.d/x.toml", text + second.replace("1024", "512"))
    with pytest.raises(PolicyError, match=r'rule "again": contradicts "mine", the rule on line 9'):
        site.load()


def test_later_file_overrides_equal_condition(site: SiteFolder) -> None:
    again = RULE.replace("1024", "512")
    site.put("rules.d/10.toml", RULE)
    site.put("rules.d/20.toml", again)
    assert site.load().rules[-1].file.endswith("20.toml")


@pytest.mark.parametrize("source", ["site", "site: array team, 2024", "K-bio-based"])
def test_site_rule_may_cite_documents(site: SiteFolder, source: str) -> None:
    site.put("rules.d/x.toml", RULE.replace('source = "site"', f'source = "{source}"'))
    assert site.load().rules[-1].source == source


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("depth = 0", "line 3: table [probe]: key `depth`: found 0, expected an integer from 1"),
        ('pattern = "write"', 'key `pattern`: found "write", expected randread or read'),
        ('block_size = "4k;rm"', 'found "4k;rm", expected a size such as "4k"'),
        ("runtime = 3", 'unknown key "runtime", expected pattern, block_size, depth or source'),
    ],
)
def test_probe_error_is_reported(site: SiteFolder, text: str, message: str) -> None:
    site.put("profiles/mine.toml", f'title = "mine"\n[probe]\n{text}\n')
    with pytest.raises(PolicyError) as caught:
        site.load("mine")
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("p99_ms = 0\n", "objective number 1: key `p99_ms`: found 0, expected a number above 0"),
        ("p99_ms = nan\n", "key `p99_ms`: found nan"),
        ('p99_ms = 1\nsource = "D9-1"\nbecause = "x"', 'key `source`: found "D9-1"'),
    ],
)
def test_objective_error_is_reported(site: SiteFolder, text: str, message: str) -> None:
    site.put("profiles/mine.toml", f'title = "mine"\n[[objective]]\n{text}\n')
    with pytest.raises(PolicyError) as caught:
        site.load("mine")
    assert message in caught.value.message


def test_error_text_is_printable(site: SiteFolder) -> None:
    site.put("rules.d/x\x1b[31m.toml", '"\\u001b]0;owned\\u0007" = 1\n')
    with pytest.raises(PolicyError) as caught:
        site.load()
    assert caught.value.message.isprintable()


@pytest.mark.parametrize(
    ("when", "fine"),
    [
        ("{ }", True),
        ('{ family = "aacraid" }', True),
        ("{ link = { gen = 3 } }", True),
        ('{ protocol = "nvme" }', True),
        ('{ protocol = "sas" }', False),
        ('{ medium = "ssd" }', False),
        ('{ vendor = "SEA*" }', False),
        ('{ kind = "path" }', False),
        ("{ tri_mode = false }", False),
    ],
)
def test_adapter_rules_exclude_endpoint_conditions(site: SiteFolder, when: str, fine: bool) -> None:
    """Such a rule would never match, in silence."""
    rule = RULE.replace('{ protocol = "sas", medium = "ssd" }', when)
    rule = rule.replace('"nr_requests"\nvalue = 1024', '"irq_affinity"\nvalue = "0-3"')
    site.put("rules.d/x.toml", rule)
    if fine:
        site.load()
    else:
        with pytest.raises(PolicyError, match=r'rule "mine".*is set on a vector.*`family`'):
            site.load()


@pytest.mark.parametrize(
    ("setting", "when", "fine"),
    [
        ("ctrl_loss_tmo", '{ model = "ACME*", transport = "tcp" }', True),
        ("ctrl_loss_tmo", '{ vendor = "ACME" }', False),
        ("timeout", '{ transport = "tcp" }', False),
        ("zio_timer", '{ model = "ACME*" }', False),
    ],
)
def test_only_controller_rules_match_transport(
    site: SiteFolder, setting: str, when: str, fine: bool
) -> None:
    rule = RULE.replace('{ protocol = "sas", medium = "ssd" }', when)
    rule = rule.replace('"nr_requests"\nvalue = 1024', f'"{setting}"\nvalue = 600')
    site.put("rules.d/x.toml", rule)
    if fine:
        [mine] = [rule for rule in site.load().rules if rule.name == "mine"]
        tcp = adapter(
            family="nvme", controller="nvme0", product="ACME Array", transport="tcp", pci=None
        )
        assert is_match(mine.when, build_adapter_traits(tcp, TargetKind.CONTROLLER))
        local = replace(tcp, transport="pcie")
        assert not is_match(mine.when, build_adapter_traits(local, TargetKind.CONTROLLER))
    else:
        with pytest.raises(PolicyError, match=r'rule "mine".*is set on a'):
            site.load()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("p99 = 2", "line 3: table [tolerance]: key `p99`: found 2, expected a number"),
        ("mean = 0", "key `mean`: found 0, expected a number above 0"),
        ("iops = 'much'", 'key `iops`: found "much", expected a number'),
        ("p95 = 0.1", 'unknown key "p95", expected iops, mean or p99'),
    ],
)
def test_tolerance_error_is_reported(site: SiteFolder, text: str, message: str) -> None:
    site.put("profiles/mine.toml", f'title = "mine"\n[tolerance]\n{text}\n')
    with pytest.raises(PolicyError) as caught:
        site.load("mine")
    assert message in caught.value.message


def test_profile_tolerance_overrides_included(site: SiteFolder) -> None:
    site.put("profiles/mine.toml", 'title = "mine"\ninclude = ["latency"]\n')
    assert site.load("mine").tolerance == site.load("latency").tolerance
    site.put(
        "profiles/mine.toml", 'title = "mine"\ninclude = ["latency"]\n[tolerance]\np99 = 0.5\n'
    )
    assert site.load("mine").tolerance == Tolerance(p99=0.5)
