"""`explain` shows a person how the depth of a shared LUN comes about."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from hbatune.cli import main
from hbatune.cli.commands import explain
from hbatune.facts.model import Kind, Medium, Protocol
from hbatune.policy.library import installed_library, load_profile
from hbatune.snapshot.file import encode_snapshot
from tests.documented import validate
from tests.unit.command_runs import See, lun, see_machine
from tests.unit.machines import adapter, attributes, endpoint, machine
from tests.unit.profiles import REQUESTS, profile
from tests.unit.site_folder import SiteFolder
from tests.unit.snapshots import snapshot

LUNS = machine(
    *(
        endpoint(
            target=f"sd{letter}",
            family="lpfc",
            protocol=Protocol.FC,
            vendor="DGC",
            model="RAID 5",
            port="0x500601613b240f3a",
            attributes=attributes(device__queue_depth="64"),
        )
        for letter in "abcde"
    )
)
ARRAY = """
[[site.array]]
name = "clariion"
vendor = "DGC"
hosts = 8
port_limit = 1600
data_drives = 4
"""


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch, site: SiteFolder) -> None:
    see_machine(monkeypatch, lambda: LUNS)


def explained(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["explain", "sda", "queue_depth", "--profile", "oltp", *words]) == 0
    return capsys.readouterr().out


def test_budget_arithmetic_is_shown(site: SiteFolder, capsys: pytest.CaptureFixture[str]) -> None:
    site.put("hbatune.toml", ARRAY)
    output = explained(capsys)
    assert "a limit of 1600 / 8 hosts / 5 paths of this host = 40 (D2-4, D2-3)" in output
    assert "32 + 14 x 4 data drives = 88 (EMC CLARiiON and VNX, D2-5)" in output
    assert "budget    40" in output
    assert output.startswith("sda queue_depth: 64 now; oltp wants 40\n")
    assert "decides" not in output, "the rule of the profile leaves the depth unchanged"
    document = json.loads(explained(capsys, "--json"))["explained"][0]
    assert document["budget"]["port"] == {"limit": 1600, "hosts": 8, "luns": 5}
    assert document["row"]["value"] == 40


def test_undescribed_array_shows_vendor_depth(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output = explained(capsys)
    assert "does not set it" in output
    assert "now 64, is kept" in output
    assert "at the load of oltp: 4K random reads, 24 in flight (D4-11)." in output
    assert "D4-11  2nd Generation IBM" in output
    assert "32 (D2-1)" in output


def test_unparsable_depth_is_unknown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    disk = replace(LUNS.endpoints[0], attributes=attributes(device__queue_depth="many"))
    host = machine(disk)
    see_machine(monkeypatch, lambda: host)
    assert "the driver's depth, now unknown, is kept" in " ".join(explained(capsys).split())


def test_sibling_path_caps_value(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [
        endpoint(
            target=target,
            family="mpi3mr",  # whose initial depth no source gives
            kind=Kind.PATH,
            map="dm-0",
            depth_cap=cap,
            attributes=attributes(device__queue_depth="32"),
        )
        for target, cap in (("sda", 1000), ("sdb", 48))
    ]
    see_machine(monkeypatch, lambda: machine(*paths))
    output = explained(capsys)
    assert output.startswith("sda queue_depth: 32 now; oltp wants 48\n")
    assert "equal on all paths or members: sdb takes 48 at most" in output


def test_unmatched_disks_share_explanation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    strange = [endpoint(target=name, id=name, protocol=Protocol.UNKNOWN) for name in ("sda", "sdb")]
    see_machine(monkeypatch, lambda: machine(*strange))
    assert main(["explain", "0000:01:00.0", "--profile", "oltp"]) == 0
    output = capsys.readouterr().out
    assert "sda sdb: no rule of profile oltp matches, so nothing is set" in output
    assert output.count("`hbatune profiles oltp` shows its rules") == 1
    assert main(["explain", "sda", "--profile", "oltp", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["explained"] == []
    [without] = document["without_rules"]
    assert without["target"] == "sda"


def test_adapter_without_lever_is_explained(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = replace(machine(adapters=(adapter(family="ahci"),)), endpoints=())
    see_machine(monkeypatch, lambda: alone)
    assert main(["explain", "0000:01:00.0", "coalescing", "--profile", "oltp"]) == 0
    assert "the driver has no option for it" in capsys.readouterr().out


def test_target_shows_line_for_each_setting(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    disk = endpoint(attributes=attributes(queue__nr_requests="256", queue__scheduler="[none]"))
    see_machine(monkeypatch, lambda: machine(disk))
    assert main(["explain", "sda", "--profile", "oltp"]) == 0
    output = capsys.readouterr().out
    [row] = [line.split() for line in output.splitlines() if line.startswith("sda     nr_requests")]
    assert row == ["sda", "nr_requests", "256", "2048", "drift", "D0-2"]
    assert "D0-2  05-50111-01 HBA Performance Report" in output


def test_target_shows_settings_without_value(capsys: pytest.CaptureFixture[str]) -> None:
    """A rule matches a LUN of an array, but only the site can set its depth."""
    assert main(["explain", "sda", "--profile", "oltp"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert not any("not set" in line for line in lines)
    [unset] = [line for line in lines if "queue_depth" in line]
    assert unset.startswith("Not set on sda: queue_depth: the vendor's default is"), unset


def test_empty_explanation_prints_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = replace(machine(adapters=(adapter(family="ahci"),)), endpoints=())
    see_machine(monkeypatch, lambda: alone)
    assert main(["explain", "0000:01:00.0", "--profile", "throughput"]) == 0
    assert capsys.readouterr().out


def test_identical_disks_are_folded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Thousands of LUNs were thousands of tables; what differs keeps a table of its own."""
    disks = [endpoint(target=f"sd{letter}") for letter in "abcdefgh"]
    disks[3] = replace(disks[3], attributes=attributes(queue__nr_requests="512"))
    see_machine(monkeypatch, lambda: machine(*disks))

    def headings(target: str) -> list[str]:
        assert main(["explain", target, "nr_requests", "--profile", "oltp"]) == 0
        return [
            line.partition(" nr_requests:")[0]
            for line in capsys.readouterr().out.splitlines()
            if " nr_requests:" in line
        ]

    assert headings("0000:01:00.0") == ["sda sdb sdc sde..sdh (7)", "sdd"]
    assert headings("sdb") == ["sdb"]
    assert main(["explain", "0000:01:00.0", "nr_requests", "--profile", "oltp", "--json"]) == 0
    explanations = json.loads(capsys.readouterr().out)["explained"]
    assert [explanation["target"] for explanation in explanations] == [
        disk.target for disk in disks
    ], "JSON has each"


def test_explain_shows_deciding_rule(see: See, capsys: pytest.CaptureFixture[str]) -> None:
    disk = endpoint(
        **lun(0, protocol=Protocol.NVME, medium=Medium.NVME, tags=975),
    )
    see(machine(disk))
    assert main(["explain", "sda", "nr_requests", "--profile", "oltp"]) == 0
    output = capsys.readouterr().out
    assert "tag set of 975 with scheduler none" in output
    assert "05-50111-01 HBA Performance Report" in output
    assert main(["explain", "sda", "scheduler", "--profile", "oltp", "--json"]) == 0
    [explanation] = json.loads(capsys.readouterr().out)["explained"]
    assert [rule["name"] for rule in explanation["rules"]] == ["nvme-scheduler"]


def test_lowered_depth_shows_decision(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lowered = endpoint(attributes=attributes(device__queue_depth="32"))
    see_machine(monkeypatch, lambda: machine(lowered))
    text = explained(capsys)
    assert text.startswith("sda queue_depth: 32 now; oltp wants 64\n"), "the rule's value"
    output = " ".join(text.split())
    assert "below the driver's own 254: an administrator's decision" in output


def test_card_is_not_over_several_adapters(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    card = endpoint(adapter=None)
    see_machine(monkeypatch, lambda: machine(card))
    assert "adapter several adapters, or none" in " ".join(explained(capsys).split())


def test_source_shows_rules_and_checks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "D4-2"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("D4-2: ")
    assert "2nd Generation IBM Power Systems SAS RAID Adapters" in out
    assert "ipr-vectors (ipr.number_of_msix; " in out
    assert "checks    msix-few" in out
    assert main(["explain", "V-vast-nvme", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    validate(document)
    assert {use["setting"] for use in document["rules"]} == {"ctrl_loss_tmo", "iopolicy"}
    assert document["source"]["settings"] == ["ctrl_loss_tmo", "iopolicy"]


def test_source_shows_profiles_with_load(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "D4-11"]) == 0
    assert "load of   balanced, oltp" in capsys.readouterr().out
    assert main(["explain", "D0-12", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    validate(document)
    assert document["profiles"] == ["latency"]


def test_rule_shows_profiles_and_source(
    site: SiteFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(explain, "installed_library", lambda: site.library)
    rule = 'name = "nr-requests"\nsetting = "nr_requests"\nvalue = 512\nbecause = "tails"\n'
    site.put("rules.d/mine.toml", f'[[rule]]\n{rule}source = "site: our DBA"\n')
    assert main(["explain", "nr-requests"]) == 0
    out = capsys.readouterr().out
    assert "nr-requests: nr_requests 2048" in out
    assert "when      protocol nvme or sas or sata or spi or volume" in out
    assert "profiles  balanced, latency, oltp, throughput" in out
    assert "source    D0-2" in out
    assert out.count("D0-2  05-50111-01 HBA Performance Report") == 1
    assert "source    site: our DBA" in out
    assert main(["explain", "nr-requests", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    validate(document)
    assert {rule["effect"]["value"] for rule in document["rules"]} == {2048, 512}
    assert [source["id"] for source in document["sources"]] == ["D0-2"]


def test_option_rule_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    [option, *_] = load_profile("latency", installed_library()).options
    assert main(["explain", option.name, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    validate(document)
    assert option.option in {entry["option"] for entry in document["options"]}
    assert main(["explain", option.name]) == 0
    assert capsys.readouterr().out.startswith(f"{option.name}: {option.setting} ")


def test_profile_and_check_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profiles", "oltp"]) == 0
    profile_text = capsys.readouterr().out
    assert main(["explain", "oltp"]) == 0
    assert capsys.readouterr().out == profile_text
    assert main(["explain", "pcie-link"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("D0-10: ")
    assert "checks    pcie-link" in out


def test_disk_precedes_profile(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    disk = endpoint(target="oltp", attributes=attributes(queue__nr_requests="256"))
    see_machine(monkeypatch, lambda: machine(disk))
    assert main(["explain", "oltp", "--profile", "oltp"]) == 0
    assert "nr_requests" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "hint"),
    [("oltpp", '"oltp"'), ("pcie-lnk", '"pcie-link"'), ("nr-request", '"nr-requests"')],
)
def test_unknown_name_shows_nearest(
    name: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", name]) == 2
    assert f"did you mean {hint}?" in capsys.readouterr().err


def test_rule_with_wrong_source_exits_2(
    site: SiteFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    rule = 'name = "deep"\nsetting = "read_ahead_kb"\nvalue = 64\nbecause = "x"\n'
    site.put("rules.d/mine.toml", f'[[rule]]\n{rule}source = "D0-2"\n')
    assert main(["diff", "--profile", "oltp"]) == 2
    error = capsys.readouterr().err
    assert 'rule "deep": key `source`: D0-2 does not cover read_ahead_kb' in error


def test_profiles_compare_without_active_profile(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    disk = endpoint(attributes=attributes(queue__nr_requests="256"))
    see_machine(monkeypatch, lambda: machine(disk))
    assert main(["explain", "sda", "nr_requests"]) == 0
    heading, row, sentence = capsys.readouterr().out.splitlines()
    assert heading.split()[2:] == ["CURRENT", "BALANCED", "LATENCY", "OLTP", "THROUGHPUT"]
    assert row.split()[:2] == ["sda", "nr_requests"]
    assert sentence.startswith("No profile is active. `hbatune explain sda --profile balanced`")
    assert main(["explain", "sda", "irq_affinity"]) == 0
    assert "sda: no profile sets irq_affinity" in capsys.readouterr().out
    assert main(["explain", "sda", "nr_requests", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    validate(document)
    rows = document["profiles"]["oltp"]
    assert [(row["target"], row["setting"]) for row in rows] == [("sda", "nr_requests")]


def test_snapshot_profiles_compare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = replace(profile(REQUESTS), name="oltp")
    (tmp_path / "db1.snap").write_bytes(encode_snapshot(snapshot(LUNS, own)))
    assert main(["explain", "sda", "--snapshot", str(tmp_path / "db1.snap"), "--json"]) == 0
    profiles = json.loads(capsys.readouterr().out)["profiles"]
    assert set(profiles) == {"balanced", "latency", "oltp", "throughput"}
    assert {row["rule"] for row in profiles["oltp"]} == {"rule-0"}, "the host's profile counts"


def test_disk_without_vendor_has_no_gap(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = endpoint(**{**lun(0), "vendor": "", "model": ""})
    see_machine(monkeypatch, lambda: machine(bare))
    assert main(["explain", "sda", "nr_requests", "--profile", "oltp"]) == 0
    assert "endpoint  sas ssd, wwn-" in capsys.readouterr().out
