"""docs/families.md says what the facts about each family rest on."""

from hbatune.facts.families import families, family_named
from tools.families_page import DRIVEN, driven, load_traps, page, rests_on

GROUNDS = {
    "megaraid_sas": "real driver",
    "scsi_debug": "real driver",
    "mpt3sas": "real driver",
    "ipr": "real driver",
    "mptspi": "module's own parameters",
    "libsas": "module's own parameters",
    "xen_blkfront": "module's own parameters",
    "ibmvscsi": "source only",  # Debian builds it for Power only
}


def test_page_states_family_grounds() -> None:
    assert {name: rests_on(family_named(name)) for name in GROUNDS} == GROUNDS
    lines = {line.split("`")[1]: line for line in page().splitlines() if line.startswith("| `")}
    for family in families():
        assert lines[family.name].endswith(f"| {rests_on(family)} |")


def test_lab_devices_count_as_driven() -> None:
    assert driven() >= set(DRIVEN.values())
    assert driven() <= {family.name for family in families()}


def test_page_lists_all_traps() -> None:
    traps = load_traps()
    assert traps.keys() <= {family.name for family in families()}
    for name, entries in traps.items():
        for trap in entries:
            assert f"- `{name}`: {trap['says']} ({trap['source']})\n" in page()
