"""What a person sees: exit codes, one line for many LUNs, JSON alone on standard output."""

import json
import re

import pytest
from msgspec.structs import replace

from hbatune.cli import main
from hbatune.facts.model import Attribute, Kind, Protocol, Storage
from tests.unit.command_runs import See, lun
from tests.unit.machines import adapter, endpoint, machine
from tests.unit.site_folder import SiteFolder


def test_diff_exits_1_on_drift(see: See, capsys: pytest.CaptureFixture[str]) -> None:
    see(machine(endpoint(**lun(0))))
    assert main(["diff", "--profile", "oltp"]) == 1
    assert "2048" in capsys.readouterr().out
    see(machine(endpoint(**lun(0, requests="2048"))))
    assert main(["diff", "--profile", "oltp"]) == 0


def test_answer_comes_first_and_counts_disks_without_a_rule(
    see: See, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    array = endpoint(**lun(1), protocol=Protocol.FC, storage=Storage.ARRAY)
    see(machine(endpoint(**lun(0)), array))
    assert main(["diff", "--profile", "oltp"]) == 1
    out = capsys.readouterr().out
    assert re.match(r"Profile oltp: \d+ to change, .*1 disk without a rule\..*\n\n", out)
    assert "\nsdb: left alone, since only the site knows how many hosts use" in out
    assert "Next" not in out, "a pipe gets records"
    monkeypatch.setattr("hbatune.text.terminal.get_width", lambda stream=None: 100)
    main(["diff", "--profile", "oltp"])
    *_, apply, explain = capsys.readouterr().out.splitlines()
    assert apply.startswith("Next   sudo hbatune apply --profile oltp ")
    command = explain.split()[1:6]
    assert main(command) == 0, "the printed command runs"
    main(["diff", "--profile", "oltp", "sda"])
    out = capsys.readouterr().out
    assert "sudo hbatune apply sda --profile oltp " in out
    assert "left alone" not in out
    assert main(["diff", "--profile", "oltp", "sdb"]) == 0
    assert "Next" not in capsys.readouterr().out


def test_next_command_counts_exclusions_that_it_overrides(
    see: See, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = endpoint(**lun(0))
    bfq = {**chosen.attributes, "queue/scheduler": Attribute("mq-deadline [bfq] none", True)}
    see(machine(replace(chosen, attributes=bfq), endpoint(**lun(1))))
    monkeypatch.setattr("hbatune.text.terminal.get_width", lambda stream=None: 100)
    main(["diff", "--profile", "oltp", "sda", "sdb"])
    out = capsys.readouterr().out
    assert "1 excluded" in out
    assert re.search(r"apply sda sdb --profile oltp +set them, and 1 excluded setting\n", out)
    main(["diff", "--profile", "oltp"])
    assert "and 1 excluded setting" not in capsys.readouterr().out, "this apply keeps the decision"
    main(["diff", "--profile", "oltp", "sdb"])
    assert re.search(r"apply sdb --profile oltp +set them\n", capsys.readouterr().out)


@pytest.mark.parametrize("command", ["diff", "apply --no-probe"])
def test_hidden_rows_are_not_counted(
    command: str,
    see: See,
    site: SiteFolder,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    card = adapter(family="smartpqi", controller=None)
    see(machine(endpoint(attributes={}), adapters=(card,)))  # nothing that can be written
    for option in ([], ["--all"]):
        main([*command.split(), "--profile", "oltp", *option])
        out = capsys.readouterr().out
        assert ("coalescing" in out) is bool(option)
        rows = re.findall(" absent  ", out)
        assert f" {len(rows)} absent." in out


def test_map_of_planned_paths_is_not_left_alone(
    see: See, site: SiteFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    array = {"protocol": Protocol.FC, "storage": Storage.ARRAY, "vendor": "DGC"}
    path = endpoint(**lun(0), **array, kind=Kind.PATH, map="dm-0", port="0x500601613b240f3a")
    see(machine(path, endpoint(**{**lun(1), "target": "dm-0"}, **array, kind=Kind.MAP)))
    main(["diff", "--profile", "oltp"])
    assert "dm-0" in capsys.readouterr().out.partition("left alone")[0]
    limit = '[[site.array]]\nname = "san"\nvendor = "DGC"\nhosts = 2\nport_limit = 100\n'
    site.put("hbatune.toml", limit)
    main(["diff", "--profile", "oltp"])
    out = capsys.readouterr().out
    assert re.search("sda.* queue_depth .* 50 ", out)
    assert "left alone" not in out


def test_unmatched_exclusion_is_reported(
    see: See, site: SiteFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wwn = "naa.5000c500a1b2c3d4"
    see(machine(endpoint(id=f"{wwn}@0000:01:00.0/sas-0x5-lun-0", **lun(0))))
    for spelled in (wwn, wwn.upper(), "wwn-0x5000c500A1B2C3D4"):
        site.put("hbatune.toml", f'[site]\nexclude = ["{spelled}"]\n')
        assert main(["diff", "--profile", "oltp"]) == 0
        assert capsys.readouterr().err == ""
    site.put("hbatune.toml", '[site]\nexclude = ["naa.5000c500a1b2c3d9"]\n')
    for command in ("diff", "explain"):
        arguments = [command, "--profile", "oltp", *(["sda"] if command == "explain" else [])]
        main(arguments)
        messages = capsys.readouterr().err
        assert "[site] exclude: 'naa.5000c500a1b2c3d9' does not match a disk or adapter" in messages


def test_identical_luns_are_folded(see: See, capsys: pytest.CaptureFixture[str]) -> None:
    see(machine(*(endpoint(**lun(number)) for number in range(12))))
    main(["diff", "--profile", "oltp"])
    lines = [line for line in capsys.readouterr().out.splitlines() if "nr_requests" in line]
    assert len(lines) == 1
    assert "sda..sdl (12)" in lines[0]
    main(["diff", "--profile", "oltp", "--all"])
    lines = [line for line in capsys.readouterr().out.splitlines() if " nr_requests " in line]
    assert [line.split()[0] for line in lines] == [f"sd{chr(97 + n)}" for n in range(12)]


def test_piped_rows_have_reasons(see: See, capsys: pytest.CaptureFixture[str]) -> None:
    hbas = [adapter(target=f"0000:0{number}:00.0") for number in (1, 2)]
    disks = [endpoint(**lun(n), adapter=hba.target) for n, hba in enumerate(hbas)]
    see(machine(*disks, adapters=tuple(hbas)))
    main(["diff", "--profile", "oltp"])
    lines = [line for line in capsys.readouterr().out.splitlines() if " nr_requests " in line]
    assert len(lines) == 2
    assert all("lets the block layer queue bursts" in line for line in lines)


def test_differing_lun_stays_unfolded(see: See, capsys: pytest.CaptureFixture[str]) -> None:
    see(machine(*(endpoint(**lun(n, requests="64" if n == 1 else "256")) for n in range(4))))
    main(["diff", "--profile", "oltp"])
    lines = [line for line in capsys.readouterr().out.splitlines() if " nr_requests " in line]
    assert sorted(line.split("nr_requests")[0].strip() for line in lines) == ["sda sdc sdd", "sdb"]


def test_stdout_contains_only_json(see: See, capsys: pytest.CaptureFixture[str]) -> None:
    see(machine(endpoint(**lun(0))))
    assert main(["diff", "--profile", "oltp", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "hbatune.plan/1"
    row = next(row for row in document["rows"] if row["setting"] == "nr_requests")
    assert (row["current"], row["wanted"], row["value"], row["state"]) == (256, 2048, 2048, "drift")
    assert row["source"] == "D0-2"


@pytest.mark.parametrize("name", ["sda", "/dev/sda", "0000:01:00.0", "host0", "wwn-0x5000c500sda"])
def test_target_accepts_aliases(name: str, see: See, capsys: pytest.CaptureFixture[str]) -> None:
    see(machine(endpoint(**lun(0))))
    assert main(["diff", name, "--profile", "oltp", "--json"]) == 1
    assert {row["target"] for row in json.loads(capsys.readouterr().out)["rows"]} == {"sda"}
