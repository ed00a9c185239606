"""`hbatune audit`: what is said of many hosts, and that no file is the end of it."""

import csv
import io
import json
import os
import re
import shlex
import signal
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hbatune.checks.finding import Severity
from hbatune.cli import main
from hbatune.facts.model import Medium, Missing, Reason
from hbatune.fleet import hosts
from hbatune.fleet.hosts import HostAudit, audit_host
from hbatune.snapshot.anonymous import anonymise_snapshot
from hbatune.snapshot.file import Snapshot, encode_snapshot
from tests.documented import validate
from tests.unit import machines as factory
from tests.unit.fleets import depth, host, machine, save
from tests.unit.snapshots import snapshot as take

OLTP = ["audit", "--profile", "oltp"]
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    snapshots = tmp_path / "snapshots"
    snapshots.mkdir()
    return save(snapshots, *map(host, range(12)))


def audited(capsys: Capture, *words: str | Path) -> tuple[int, str, str]:
    code = main([*OLTP, *map(str, words)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_audit_reports_drift_and_outliers(folder: Path, capsys: Capture) -> None:
    save(folder, host(99, adapter={"link": factory.link(width=4)}))
    code, out, err = audited(capsys, folder)
    assert (code, err) == (1, "")
    assert re.search(r"^db99 +4 +8 +12/13 +link width of HBA 9300-8i$", out, re.M)
    drift = r"^nr_requests +sas ssd +256 +2048 +oltp +13 +13 +db0\.\.db11 db99 +D0-2$"
    assert re.search(drift, out, re.M)
    assert re.search(r"^warning +pcie-link +1 +db99", out, re.M)
    assert re.search(r"^link +HBA 9300-8i +Gen3 x8 +12 +12$", out, re.M)
    assert re.search(r"^link +HBA 9300-8i +Gen3 x4 +1 +1$", out, re.M)
    last = out.splitlines()[-1]
    assert last == "1 group of peers, 1 outlier, 0 anonymous (named by file)."
    assert out.startswith("13 hosts: 13 drifted.\n")


TUNED = factory.attributes(
    queue__scheduler="none [mq-deadline]",
    queue__nr_requests="2048",
    device__queue_depth="254",
    queue__iostats="1",
    queue__rq_affinity="2",
)


def with_policy(number: int, **policy: Any) -> Snapshot:
    """Return the snapshot of a tuned host with another policy."""
    tuned = host(number, attributes=TUNED)
    return replace(tuned, policy=replace(tuned.policy, **policy))


def test_audit_exits_like_diff(tmp_path: Path, capsys: Capture) -> None:
    save(tmp_path, *(host(number, attributes=TUNED) for number in range(3)))
    code, out, _ = audited(capsys, tmp_path)
    assert code == 0
    assert out.startswith("3 hosts: 3 as wanted.\n\nNothing to do\n")
    broken = tmp_path / "broken.snap"
    broken.write_bytes(b"")
    assert audited(capsys, tmp_path)[0] == 1
    broken.unlink()
    save(tmp_path, host(4))
    assert audited(capsys, tmp_path)[0] == 1


def test_unknown_profile_is_named(tmp_path: Path, capsys: Capture) -> None:
    save(tmp_path, with_policy(1), with_policy(2))
    code, _, messages = audited(capsys, tmp_path, "--profile", "nosuch")
    assert code == 2
    assert messages.startswith('hbatune: there is no profile "nosuch", only ')
    assert ".snap" not in messages


def test_hosts_without_comparison_exit_1(tmp_path: Path, capsys: Capture) -> None:
    unread = {**TUNED, "queue/nr_requests": Missing(Reason.UNREADABLE, 5)}
    fleets = {
        "not set up": with_policy(1),
        "rolled back": with_policy(2, rolled_back_all=True),
        "not fully compared": host(3, attributes=unread),
    }
    for state, snapshot in fleets.items():
        profile = [] if state != "not fully compared" else ["--profile", "oltp"]
        folder = tmp_path / state
        folder.mkdir()
        save(folder, snapshot)
        code = main(["audit", *profile, str(folder)])
        out = capsys.readouterr().out
        assert (code, out.splitlines()[0]) == (1, f"1 host: 1 {state}.")
        assert "as wanted" not in out


def test_excluded_host_is_not_compared(tmp_path: Path, capsys: Capture) -> None:
    excluded = tuple(endpoint.id for endpoint in host(1).machine.endpoints)
    save(tmp_path, with_policy(1, rolled_back=excluded))
    code, out, _ = audited(capsys, tmp_path)
    assert (code, out.splitlines()[0]) == (1, "1 host: 1 not fully compared.")


def test_host_without_profile_is_not_odd(tmp_path: Path, capsys: Capture) -> None:
    save(tmp_path, *map(with_policy, range(9)), with_policy(9, active="balanced"))
    code = main(["audit", "--json", str(tmp_path)])
    document = json.loads(capsys.readouterr().out)
    validate(document)
    assert code == 1
    assert document["odd"] == []
    assert document["headline"] == "10 hosts: 1 as wanted, 9 not set up"
    assert document["not_set_up"] == [f"db{number}" for number in range(9)]
    [remedy] = document["do_first"]
    limit = "--limit db0,db1,db2,db3,db4,db5,db6,db7,db8"
    assert remedy["command"].endswith(f"-e hbatune_profile=balanced {limit}"), "all 9 hosts"


def test_new_host_gets_profile_of_its_peers(tmp_path: Path, capsys: Capture) -> None:
    arrays = [host(number, adapter={"family": "qla2xxx"}) for number in range(10, 14)]
    save(tmp_path, *(with_policy(number, active="oltp") for number in range(6)))
    for number, new in enumerate(arrays):
        active = "balanced" if number else None
        save(tmp_path, replace(new, policy=replace(new.policy, active=active)))
    main(["audit", "--json", str(tmp_path)])
    listed = json.loads(capsys.readouterr().out)["do_first"]
    commands = [remedy["command"] for remedy in listed if remedy["hosts"] == ["db10"]]
    assert commands == ["hbatune -H db10 diff --profile balanced"]


def remedies(folder: Path, capsys: Capture) -> list[dict[str, Any]]:
    """Return the remedies of an audit of the folder. Those for this machine run."""
    listed: list[dict[str, Any]] = json.loads(audited(capsys, "--json", folder)[1])["do_first"]
    for remedy in listed:
        words = shlex.split(remedy["command"])
        if words[0] == "hbatune" and "-H" not in words:
            assert main(words[1:]) == 1, "it works, and shows the difference"
    capsys.readouterr()
    return listed


def test_remedies_name_their_host(folder: Path, capsys: Capture) -> None:
    save(folder, host(99, adapter={"link": factory.link(width=4)}))
    (folder / "cut.snap").write_bytes(b"")
    listed = remedies(folder, capsys)
    severities = [remedy["severity"] for remedy in listed]
    assert severities == sorted(severities, key=list(reversed(Severity)).index)
    links = [remedy for remedy in listed if remedy["hosts"] == ["db99"]]
    compare = f"hbatune compare {folder / 'db0.snap'} {folder / 'db99.snap'}"
    assert {remedy["command"] for remedy in links} == {"hbatune -H db99 check", compare}
    for remedy in listed:
        assert remedy["command"].startswith(("hbatune ", "ansible-playbook "))
        if remedy["hosts"]:
            assert remedy["hosts"][0] in remedy["command"]
    again = f"snapshots -i inventory -e hbatune_snapshots={folder} --limit cut"
    assert f"ansible-playbook hbatune.hbatune.{again}" in [remedy["command"] for remedy in listed]
    _, out, _ = audited(capsys, folder)
    assert "on db99: reseat the card" in out


def test_local_remedies_need_no_ssh(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr("hbatune.cli.commands.audit.take_snapshot", lambda context: host(1))
    assert main(OLTP) == 1
    out = capsys.readouterr().out
    assert "hbatune diff --profile oltp" in out
    assert "-H" not in out


def test_drift_names_kind_of_disk(tmp_path: Path, capsys: Capture) -> None:
    two = [factory.endpoint(), factory.endpoint(target="sdb", medium=Medium.HDD)]
    save(tmp_path, take(machine(1, *two)))
    out = audited(capsys, tmp_path)[1]
    assert re.search(r"^nr_requests +sas ssd +256", out, re.M)
    assert re.search(r"^nr_requests +sas hdd +256", out, re.M)


def test_json_matches_schema(folder: Path, capsys: Capture) -> None:
    save(folder, host(99, **depth(32)))
    (folder / "broken.snap").write_bytes(b"x")
    code, out, err = audited(capsys, "--json", folder)
    document = json.loads(out)
    validate(document)
    assert code == 1
    assert len(document["hosts"]) == 13
    assert [(outlier["host"], outlier["what"]) for outlier in document["odd"]] == [
        ("db99", "queue_depth")
    ]
    assert [Path(file["file"]).name for file in document["unusable"]] == ["broken.snap"]
    assert "broken.snap': truncated" in err


def test_bad_files_are_listed(folder: Path, capsys: Capture) -> None:
    encoded = encode_snapshot(host(50))
    (folder / "cut.snap").write_bytes(encoded[:-20])
    (folder / "empty.snap").write_bytes(b"")
    (folder / "newer.snap").write_bytes(
        encode_snapshot(replace(host(51), schema="hbatune.snapshot/9"))
    )
    (folder / "aeons.snap").write_bytes(encode_snapshot(replace(host(52), taken=1 << 62)))
    os.mkfifo(folder / "fifo.snap")
    (folder / "gone.snap").symlink_to("nowhere")
    code, out, _ = audited(capsys, folder)
    assert code == 1
    reasons = dict(re.findall(r"/(\w+)\.snap +(\S.*)$", out, re.M))
    assert reasons["cut"] == "truncated"
    assert reasons["empty"] == "empty"
    assert (
        reasons["newer"]
        == "has schema hbatune.snapshot/9, and this hbatune reads hbatune.snapshot/1"
    )
    assert reasons["aeons"].startswith(
        "a snapshot that makes no sense: Expected `int` <= 253402214400"
    )
    assert reasons["fifo"] == "not a regular file"
    assert reasons["gone"] == "cannot be read: No such file or directory"
    assert "18 hosts: 12 drifted, 6 not read" in out


def test_crashing_file_is_listed(
    folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fatal(snapshot: Snapshot, file: str, profile: str | None) -> HostAudit:
        if snapshot.machine.hostname == "db3":
            os.kill(os.getpid(), signal.SIGKILL)
        return audit_host(snapshot, file, profile)

    monkeypatch.setattr(hosts, "audit_host", fatal)
    code, out, _ = audited(capsys, folder)
    assert code == 1
    assert re.search(r"db3\.snap +signal 9 killed the process that read it$", out, re.M)
    assert "12 hosts: 11 drifted, 1 not read" in out


def test_anonymous_host_shows_file(folder: Path, capsys: Capture) -> None:
    hidden = anonymise_snapshot(host(60, adapter={"link": factory.link(width=2)}))
    (folder / "hidden.snap").write_bytes(encode_snapshot(hidden))
    _, out, _ = audited(capsys, folder)
    assert re.search(r"/hidden\.snap +2 +8 +12/13 +link width", out)
    assert "1 anonymous (named by file)" in out
    assert re.search(r"hbatune diff --profile oltp --snapshot \S+/hidden\.snap", out)
    assert hidden.machine.hostname not in out
    commands = re.findall(r"^ +hbatune ((?:check|diff) .*hidden\.snap)$", out, re.M)
    assert len(commands) >= 2
    for command in set(commands):
        assert main(shlex.split(command)) == 1, "the remedy works, and shows the problem"


def test_duplicate_hostnames_are_disambiguated(folder: Path, capsys: Capture) -> None:
    (folder / "older.snap").write_bytes(encode_snapshot(host(3)))
    document = json.loads(audited(capsys, "--json", folder)[1])
    names = [
        Path(host_entry["name"]).name
        for host_entry in document["hosts"]
        if host_entry["hostname"] == "db3"
    ]
    assert names == ["db3.snap", "older.snap"]


HOSTILE = '=HYPERLINK("http://x")\x1b[31m<script>alert(1)</script>'


def test_csv_escapes_formulas(tmp_path: Path, capsys: Capture) -> None:
    evil = host(1)
    evil = replace(evil, machine=replace(evil.machine, hostname=HOSTILE))
    path = tmp_path / "evil.snap"
    path.write_bytes(encode_snapshot(evil))
    _, out, _ = audited(capsys, "--csv", path)
    rows = list(csv.reader(io.StringIO(out)))
    assert {len(row) for row in rows} == {9}
    named = {row[1] for row in rows if row[0] == "host"}
    assert named == {'\'=HYPERLINK("http://x")\\x1b[31m<script>alert(1)</script>'}
    assert not [field for row in rows for field in row if field.startswith(("=", "+", "-", "@"))]
    assert "\x1b" not in out


def test_html_escapes_hostile_names(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    evil = host(1, adapter={"product": HOSTILE})
    evil = replace(evil, machine=replace(evil.machine, hostname=HOSTILE))
    (folder / "evil.snap").write_bytes(encode_snapshot(evil))
    page = tmp_path / "fleet.html"
    assert audited(capsys, "--html", page, folder)[0] == 1
    text = page.read_text()
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "default-src 'none'" in text
    assert not re.search(r"""(src|href)=["'](?!#)""", text)


def test_html_filter_hides_rows(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    save(folder, host(99, **depth(32)))
    page = tmp_path / "fleet.html"
    audited(capsys, "--html", page, folder)
    text = page.read_text()
    assert "body:has(#state-odd:checked) .hosts tbody tr:not(.odd) { display: none; }" in text
    rows = re.findall(r'<tr class="([^"]*)">\s*<th scope="row">(\w+)</th>', text)
    assert [name for marks, name in rows if "odd" in marks.split()] == ["db99"]
    assert len(rows) == 13


def test_existing_page_needs_force(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    page = tmp_path / "fleet.html"
    page.write_text("mine")
    code, _, err = audited(capsys, "--html", page, folder)
    assert code == 2
    assert "exists already" in err
    assert page.read_text() == "mine"
    assert audited(capsys, "--html", page, "--force", folder)[0] == 1
    assert page.read_text() != "mine"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere.snap"], "'nowhere.snap': cannot be read: No such file or directory"),
        (["."], "no file in '.' has a name that ends in .snap or .snapshot"),
        (["--json", "--csv", "x"], "--json and --csv both print to standard output"),
        (["--processes", "0", "x"], "--processes takes a whole number, at least 1, and not '0'"),
    ],
)
def test_bad_usage_exits_2(
    words: list[str], message: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = audited(capsys, *words)
    assert (code, out) == (2, "")
    assert message in err


def test_unknown_profile_is_reported(folder: Path, capsys: Capture) -> None:
    code = main(["audit", "--profile", "nope", str(folder)])
    assert code == 2
    assert 'there is no profile "nope"' in capsys.readouterr().err


def test_output_fits_80_columns(
    folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(folder, host(99, adapter={"link": factory.link(width=4)}))
    monkeypatch.setattr("hbatune.text.terminal.get_width", lambda stream=None: 80)
    _, out, _ = audited(capsys, folder)
    long = [line for line in out.splitlines() if len(line) > 80]
    commands = [remedy["command"] for remedy in remedies(folder, capsys)]
    assert {line.strip() for line in long} <= set(commands), "commands are never broken"
    assert long
    assert "db99" in out
