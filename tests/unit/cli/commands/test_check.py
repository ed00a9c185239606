"""`check`, `snapshot` and --snapshot as a person sees them."""

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbatune.checks.registry import run_checks
from hbatune.cli import main
from hbatune.cli.commands.check import make_check_document
from hbatune.facts.health import UdevRule
from hbatune.facts.model import Role
from hbatune.policy.config import ApprovedVersions, Site
from hbatune.policy.profile import Exactly
from hbatune.snapshot.file import Snapshot, encode_snapshot
from hbatune.text.terminal import make_printable
from tests.documented import validate
from tests.unit.check_inputs import adapter_health, disk_health, format_finding, health, seen
from tests.unit.machines import ABSENT, adapter, attributes, endpoint, machine, vector
from tests.unit.profiles import profile
from tests.unit.snapshots import snapshot
from tests.unit.terminals import Terminal

WANTS = profile(("nr_requests", Exactly(2048)))
Keep = Callable[[Snapshot], str]


@pytest.fixture
def keep(tmp_path: Path) -> Keep:
    def write(host_snapshot: Snapshot) -> str:
        path = tmp_path / "host.snapshot"
        path.write_bytes(encode_snapshot(host_snapshot))
        return str(path)

    return write


def sick() -> Snapshot:
    drive = endpoint(attributes=attributes(queue__scheduler="none [mq-deadline]"))
    host_snapshot = snapshot(machine(drive))
    disks = {"sda": disk_health(timeouts=3)}
    return msgspec.structs.replace(host_snapshot, health=health(host_snapshot.machine, disks=disks))


def test_check_exit_codes(keep: Keep, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["check", "--snapshot", keep(snapshot(machine()))]) == 0
    assert "Clean" in capsys.readouterr().out
    assert main(["check", "--snapshot", keep(sick())]) == 1
    assert "3 of 1000000 commands timed out" in capsys.readouterr().out
    assert main(["check", "--snapshot", str(tmp_path / "none")]) == 2
    assert main(["check", "sdz", "--snapshot", keep(sick())]) == 2
    assert main(["check", "--profile", "nosuch", "--snapshot", keep(sick())]) == 2
    assert capsys.readouterr().out == ""


def test_json_matches_schema(keep: Keep, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--json", "--snapshot", keep(sick())]) == 1
    document = json.loads(capsys.readouterr().out)
    validate(document)
    assert document["schema"] == "hbatune.check/1"
    first = document["findings"][0]
    assert {"id", "severity", "target", "evidence", "advice", "source"} <= set(first)
    assert (first["id"], first["target"], first["source"]) == (
        "command-timeouts",
        "sda",
        "K-error-counters",
    )
    assert first["facts"] == {"timeouts": 3, "done": 1_000_000}


def test_finding_count_is_pluralized(keep: Keep, capsys: pytest.CaptureFixture[str]) -> None:
    def last(*drives: tuple[str, int]) -> str:
        luns = [endpoint(target=name, id=name) for name, _ in drives]
        host_snapshot = snapshot(machine(*luns))
        disks = {name: disk_health(timeouts=count) for name, count in drives}
        host_snapshot = msgspec.structs.replace(
            host_snapshot, health=health(host_snapshot.machine, disks=disks)
        )
        assert main(["check", "--snapshot", keep(host_snapshot)]) == 1
        lines = capsys.readouterr().out.splitlines()
        return next(line for line in lines if line.startswith("Found: "))

    assert last(("sda", 3)) == "Found: 1 warning."
    assert last(("sda", 3), ("sdb", 3)) == "Found: 2 warnings."


def test_shared_findings_are_folded(keep: Keep, capsys: pytest.CaptureFixture[str]) -> None:
    luns = (endpoint(target=f"sd{letter}") for letter in "abcdefgh")
    main(["check", "--snapshot", keep(snapshot(machine(*luns)))])
    lines = [line for line in capsys.readouterr().out.splitlines() if "drive's cache" in line]
    assert len(lines) == 1
    assert "sda..sdh (8)" in lines[0]


def test_each_finding_shows_its_advice(keep: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    host_snapshot = snapshot(machine(endpoint(), endpoint(target="sdb")))
    disks = {"sda": disk_health(cache="write back"), "sdb": disk_health(cache="none")}
    checked = health(host_snapshot.machine, disks=disks)
    file = keep(msgspec.structs.replace(host_snapshot, health=checked))
    monkeypatch.setattr("sys.stdout", screen := Terminal())
    monkeypatch.setenv("COLUMNS", "80")
    main(["check", "--snapshot", file, "--no-pager"])
    text = " ".join(screen.getvalue().split())
    first, second = text.partition("cache: write back")[2].split("cache: none")
    advice = "→ nothing: it is shown because it moves results"
    assert first.count(advice) == second.count(advice) == 1, screen.getvalue()


def test_snapshot_uses_host_policy(keep: Keep, capsys: pytest.CaptureFixture[str]) -> None:
    disks = [
        endpoint(
            target=name, attributes=attributes(queue__scheduler="[none]", queue__nr_requests="2")
        )
        for name in ("sda", "sdb", "sdc")
    ]
    site = Site(exclude=("sda",), approved=(ApprovedVersions("mpt3sas", firmware=("99",)),))
    host_snapshot = snapshot(
        machine(*disks), WANTS, active=WANTS.name, site=site, rolled_back=(disks[1].id,)
    )
    main(["diff", "--json", "--snapshot", keep(host_snapshot)])
    document = json.loads(capsys.readouterr().out)
    assert document["summary"]["profile"] == WANTS.name
    limits = {row["target"]: row["limit"] for row in document["rows"]}
    assert limits["sda"] == "excluded in [site]"
    assert limits["sdb"].startswith("rolled back")
    assert main(["check", "--snapshot", keep(host_snapshot)]) == 1
    assert "16.00.12.00 is not among the approved ones: 99" in capsys.readouterr().out


def test_snapshot_accepts_local_profile(keep: Keep, capsys: pytest.CaptureFixture[str]) -> None:
    path = keep(snapshot(machine()))
    assert main(["diff", "--json", "--profile", "oltp", "--snapshot", path]) == 1
    assert json.loads(capsys.readouterr().out)["summary"]["profile"] == "oltp"
    assert main(["diff", "--snapshot", path]) == 2
    assert main(["explain", "sda", "--profile", "oltp", "--snapshot", path]) == 0
    assert main(["list", "--snapshot", path]) == 0
    assert "XS400ME70084" in capsys.readouterr().out


def test_other_hosts_counters_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def write(name: str, hostname: str, boot_id: str, taken: int) -> str:
        host = msgspec.structs.replace(machine(hostname=hostname), boot_id=boot_id)
        taken_snapshot = msgspec.structs.replace(snapshot(host), taken=taken)
        (tmp_path / name).write_bytes(encode_snapshot(taken_snapshot))
        return str(tmp_path / name)

    new = write("new", "db1", "boot-2", 1_800_000_000)
    older = write("older", "db1-before-renaming", "boot-2", 1_799_990_000)
    assert main(["check", "--snapshot", new, "--since", older]) == 0
    assert "no counters to compare" not in capsys.readouterr().err
    rebooted = write("rebooted", "db1", "boot-1", 1_799_990_000)
    assert main(["check", "--snapshot", new, "--since", rebooted]) == 0
    assert "no counters to compare" in capsys.readouterr().err
    stranger = write("stranger", "db2", "boot-3", 1_799_990_000)
    assert main(["check", "--snapshot", new, "--since", stranger]) == 2
    assert "is of another host, db2" in capsys.readouterr().err


def test_snapshot_replacement_needs_force(
    keep: Keep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("hbatune.cli.commands.snapshot.take_snapshot", lambda context: sick())
    path = tmp_path / "new"
    assert main(["snapshot", str(path)]) == 0
    assert main(["check", "--snapshot", str(path)]) == 1
    before = path.read_bytes()
    assert main(["snapshot", str(path), "--anonymous"]) == 2
    assert "exists already" in capsys.readouterr().err
    assert path.read_bytes() == before
    assert main(["snapshot", str(path), "--anonymous", "--force"]) == 0
    assert b"db1" not in path.read_bytes()
    assert main(["snapshot", str(tmp_path / "no" / "folder")]) == 2
    assert main(["snapshot", "/dev/null", "--force"]) == 2
    assert "not a regular file" in capsys.readouterr().err


hostile = st.text(st.characters(codec="utf-8"), max_size=30)


@given(hostile, hostile)
def test_hostile_names_are_escaped(model: str, value: str) -> None:
    host = machine(
        endpoint(model=model, mounts=(value,)),
        adapters=(adapter(product=model, firmware=model),),
        vectors=(vector(role=Role.LINE, names=(value,)),),
    )
    fares = health(
        host,
        adapters={
            "0000:01:00.0": adapter_health(
                vectors=ABSENT, offers_msi=True, options={"msix_disable": value}
            )
        },
        disks={"sda": disk_health(cache=value)},
        udev_rules=(UdevRule(model, 1, "queue/scheduler", value),),
    )
    site = Site(approved=(ApprovedVersions("mpt3sas", firmware=("99",)),))
    check_input = seen(host, fares, site=site)
    findings = run_checks(check_input)
    assert {"msix-off", "drive-cache", "udev-rule"} <= {finding.id for finding in findings}
    for finding in findings:
        assert make_printable(format_finding(finding).evidence).isprintable()
    assert msgspec.json.decode(msgspec.json.encode(make_check_document(check_input, findings)))


def test_finding_names_uses_and_array(keep: Keep, capsys: pytest.CaptureFixture[str]) -> None:
    drives = [
        endpoint(target="dm-3", id="dm-3", alias="mpatha", mounts=("/srv",), volumes=("vg0/pg",)),
        endpoint(target="sdb", id="sdb"),
        endpoint(target="nvme0n1", id="nvme0n1", model="NetApp ONTAP Controller"),
    ]
    host_snapshot = snapshot(machine(*drives))
    counts = {"dm-3": 3, "sdb": 4, "nvme0n1": 5}
    disks = {name: disk_health(timeouts=count) for name, count in counts.items()}
    host_health = health(host_snapshot.machine, disks=disks)
    path = keep(msgspec.structs.replace(host_snapshot, health=host_health))
    assert main(["check", "--snapshot", path]) == 1
    text = " ".join(capsys.readouterr().out.split())
    timeouts = "of 1000000 commands timed out"
    assert f"dm-3 (mpatha) 3 {timeouts} K-error-counters used by /srv vg0/pg → " in text
    assert f"sdb 4 {timeouts} K-error-counters → " in text
    assert f"nvme0n1 5 {timeouts} K-error-counters on NetApp ONTAP → " in text
    assert "info dm-3 nvme0n1 sdb the drive's cache: write through D1-4 → " in text
