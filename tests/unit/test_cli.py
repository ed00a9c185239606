"""What a person sees: exit codes, one line for many LUNs, JSON alone on standard output."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hbatune.act import journal, paths
from hbatune.act.journal import Journal
from hbatune.cli import main
from hbatune.facts.model import Machine, Medium, Protocol
from hbatune.text.terminal import make_printable
from tests.unit.factory import adapter, attributes, endpoint, machine
from tests.unit.policy_site import SiteFolder

See = Callable[[Machine], None]


def lun(number: int, requests: str = "256", **overrides: object) -> dict[str, object]:
    return {
        "target": f"sd{chr(97 + number)}",
        "attributes": attributes(
            queue__scheduler="none [mq-deadline]",
            queue__nr_requests=requests,
            device__queue_depth="254",
        ),
        **overrides,
    }


@pytest.fixture
def see(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> See:
    """Return a function that makes the commands see a described machine."""
    monkeypatch.setattr(paths, "CLAIMS", tmp_path / "writers")
    monkeypatch.setattr(paths, "JOURNAL", tmp_path / "journal.json")

    def show(described: Machine) -> None:
        for module in ("operations.situation", "cli.commands.list"):
            monkeypatch.setattr(f"hbatune.{module}.gather_machine", lambda *a, **k: described)

    show(machine())
    return show


def test_diff_exits_1_on_drift(see: See, capsys: pytest.CaptureFixture[str]) -> None:
    see(machine(endpoint(**lun(0))))
    assert main(["diff", "--profile", "oltp"]) == 1
    assert "2048" in capsys.readouterr().out
    see(machine(endpoint(**lun(0, requests="2048"))))
    assert main(["diff", "--profile", "oltp"]) == 0


def test_unmatched_exclusion_is_reported(
    see: See, site: SiteFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("hbatune.operations.situation.installed_library", lambda: site.library)
    monkeypatch.setattr("hbatune.policy.chosen.installed_library", lambda: site.library)
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
        said = capsys.readouterr().err
        assert "[site] exclude: 'naa.5000c500a1b2c3d9' is no disk or adapter" in said


def test_lost_legacy_rollback_is_reported(see: See, capsys: pytest.CaptureFixture[str]) -> None:
    see(machine(endpoint(**lun(0))))
    lost = "naa.5000c500ffffffff@0000:01:00.0/0:0:9:0"
    journal.save(paths.JOURNAL, Journal("an earlier boot", excluded=(lost,)))
    main(["diff", "--profile", "oltp"])
    assert f"{lost!r} was rolled back" in capsys.readouterr().err


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
    disks = [endpoint(**lun(n), adapter=each.target) for n, each in enumerate(hbas)]
    see(machine(*disks, adapters=tuple(hbas)))
    main(["diff", "--profile", "oltp"])
    lines = [line for line in capsys.readouterr().out.splitlines() if " nr_requests " in line]
    assert len(lines) == 2
    assert all("room for bursts in the block layer" in line for line in lines)


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


def test_list_shows_identity_and_use(see: See, capsys: pytest.CaptureFixture[str]) -> None:
    see(machine(endpoint(mounts=("/srv",), holders=("dm-0",))))
    assert main(["list", "--json"]) == 0
    [found] = json.loads(capsys.readouterr().out)["endpoints"]
    assert {"target", "id", "adapter", "family", "medium", "protocol"} <= set(found)
    assert (found["vendor"], found["model"]) == ("SEAGATE", "XS400ME70084")
    assert (found["mounted"], found["held"]) == (True, True)
    assert main(["list"]) == 0
    assert "/srv" in capsys.readouterr().out


def test_list_names_adapter_product(see: See, capsys: pytest.CaptureFixture[str]) -> None:
    plain = adapter(target="0000:02:00.0")
    known = adapter(product="Broadcom eHBA 9600-24i", document="05-50111-01 (D0)")
    see(machine(adapters=(known, plain)))
    assert main(["list"]) == 0
    said = capsys.readouterr().out
    assert "mpt3sas  Broadcom eHBA 9600-24i  05-50111-01 (D0)" in said
    assert "link 8 GT/s x8" in said
    assert main(["list", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["adapters"]
    assert [(each["product"], each["document"]) for each in found] == [
        ("Broadcom eHBA 9600-24i", "05-50111-01 (D0)"),
        ("HBA 9300-8i", None),
    ]


def test_explain_shows_deciding_rule(see: See, capsys: pytest.CaptureFixture[str]) -> None:
    made = endpoint(
        **lun(0, protocol=Protocol.NVME, medium=Medium.NVME, tags=975),
    )
    see(machine(made))
    assert main(["explain", "sda", "nr_requests", "--profile", "oltp"]) == 0
    said = capsys.readouterr().out
    assert "tag set of 975 with scheduler none" in said
    assert "05-50111-01 HBA Performance Report" in said
    assert main(["explain", "sda", "scheduler", "--profile", "oltp", "--json"]) == 0
    [told] = json.loads(capsys.readouterr().out)["explained"]
    assert [rule["name"] for rule in told["rules"]] == ["nvme-scheduler"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["diff", "--profile", "oltpp"], "oltp"),
        (["diff", "sdzz", "--profile", "oltp"], "sdzz"),
        (["diff"], "no profile is active"),
        (["explain", "sda", "nr_request", "--profile", "oltp"], "nr_requests"),
        (["profiles", "nope"], "nope"),
    ],
)
def test_bad_input_exits_2(
    words: list[str], said: str, see: See, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    caught = capsys.readouterr()
    assert said in caught.err
    assert caught.out == ""


@pytest.mark.parametrize("words", [["frobnicate"], [], ["diff", "--frobnicate"]])
def test_bad_usage_exits_2(words: list[str], see: See, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    caught = capsys.readouterr()
    assert caught.err.startswith("hbatune: ")
    assert caught.out == ""


@pytest.mark.parametrize("name", ["sda", "/dev/sda", "0000:01:00.0", "host0", "wwn-0x5000c500sda"])
def test_target_accepts_aliases(name: str, see: See, capsys: pytest.CaptureFixture[str]) -> None:
    see(machine(endpoint(**lun(0))))
    assert main(["diff", name, "--profile", "oltp", "--json"]) == 1
    assert {row["target"] for row in json.loads(capsys.readouterr().out)["rows"]} == {"sda"}


def test_kernel_names_are_escaped(see: See, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "\x1b]0;owned\x07\x1b[31m\r\nX"
    see(machine(endpoint(model=hostile)))
    main(["list"])
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\r" not in out
    assert make_printable(hostile) in out


def test_profiles_show_rule_sources(see: See, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profiles", "oltp"]) == 0
    said = capsys.readouterr().out
    assert "nr-requests" in said
    assert "D0-2" in said
    assert "05-50111-01 HBA Performance Report" in said
    assert main(["profiles", "--json"]) == 0
    names = [each["name"] for each in json.loads(capsys.readouterr().out)["profiles"]]
    assert names == ["balanced", "latency", "oltp", "throughput"]


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("hbatune ")


@pytest.mark.parametrize(("command", "policy"), [("profiles", "BATCH"), ("history", "OTHER")])
def test_scanning_commands_lower_priority(command: str, policy: str) -> None:
    """A probe that waits for its turn would measure the waiting."""
    code = f"""
import os
from hbatune.cli import main
os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
main(["{command}"])
raise SystemExit(os.sched_getscheduler(0) != os.SCHED_{policy})
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
