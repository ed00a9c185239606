"""Every name that people use is a target: of stacks, of file systems, of addresses."""

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.hosts.machines import build_many_luns
from tests.hosts.namespace import OWN_CONFIGURATION, run
from tests.hosts.stacks import ZFS_MEMBERS, stacks
from tests.hosts.tree import Described, Disk, Mapped, build

MIRROR = ("sda", "sdb")
MAP = ("dm-3", "sde", "sdf")
POOL = ("sdg", "sdh")
ZPOOL = ("sdi", "sdj")
NAMES = {
    "md127": (MIRROR, "md127 is on sda and sdb"),
    "/dev/md127": (MIRROR, "/dev/md127 is on sda and sdb"),
    "dm-0": (MIRROR, "dm-0 is on vg-0/pg-data, on md127, on sda and sdb"),
    "vg-0/pg-data": (MIRROR, "vg-0/pg-data is on md127, on sda and sdb"),
    "/dev/vg-0/pg-data": (MIRROR, "/dev/vg-0/pg-data is on md127, on sda and sdb"),
    "vg--0-pg--data": (MIRROR, "vg--0-pg--data is on vg-0/pg-data, on md127, on sda and sdb"),
    "/srv": (MIRROR, "/srv is on vg-0/pg-data, on md127, on sda and sdb"),
    "/srv/.": (MIRROR, "/srv/. is on vg-0/pg-data, on md127, on sda and sdb"),
    "sdc2": (("sdc",), "sdc2 is on sdc"),
    "sdc1": (("sdc",), "sdc1 is on sdc"),
    "/boot": (("sdc",), "/boot is on sdc1, on sdc"),
    "secret": (("sdc",), "secret is on sdc"),
    "/dev/mapper/secret": (("sdc",), "/dev/mapper/secret is on sdc"),
    "bcache0": (("sdd",), "bcache0 is on sdd"),
    "mpatha": (MAP, ""),
    "vg1/data": (MAP, "vg1/data is on mpatha (dm-3)"),
    "/mnt": (MAP, "/mnt is on vg1/data, on mpatha (dm-3)"),
    "/media": (POOL, "/media is on sdg and sdh1, on sdh"),
    "0:0:3:0": (("sdd",), ""),
    "tank": (ZPOOL, "tank is on sdi1 and sdj, on sdi"),
    "/var/tmp": (ZPOOL, "/var/tmp is on sdi1 and sdj, on sdi"),
    "/dev/zvol/tank/x": (ZPOOL, "/dev/zvol/tank/x is on sdi1 and sdj, on sdi"),
    "/dev/disk/by-id/wwn-0x6000d": (("sdd",), ""),
    "wwn-0x6000d": (("sdd",), ""),
    "/dev/disk/by-path/pci-0000:01:00.0-sas-0x6000d-lun-0": (("sdd",), ""),
    "/dev/disk/by-id/dm-uuid-mpath-36000f": (MAP, ""),
}
"""By name, the disks below it and the message."""

LINKS = {
    "/dev/zvol/tank/x": "zd0",
    "/dev/disk/by-id/wwn-0x6000d": "sdd",
    "/dev/disk/by-path/pci-0000:01:00.0-sas-0x6000d-lun-0": "sdd",
    "/dev/disk/by-id/dm-uuid-mpath-36000f": "dm-3",
}
"""udev's links, with their nodes."""

_OWN_DEVICES = (
    "sh",
    "-c",
    """
mkdir /run/dev && mount -t tmpfs -o mode=755 tmpfs /run/dev || exit 77
for node in null urandom; do
    touch /run/dev/$node && mount --bind /dev/$node /run/dev/$node || exit 77
done
mount --rbind /run/dev /dev || exit 77
exec "$@"
""",
    "sh",
)
# In one process: each process has its mountinfo, and a start takes long.
_RUN = """
import json
import os
import sys
from pathlib import Path
from hbatune.cli import main
for name, text in json.loads(sys.argv[3]).items():
    Path("/etc/hbatune", name).parent.mkdir(parents=True, exist_ok=True)
    Path("/etc/hbatune", name).write_text(text)
for link, node in json.loads(sys.argv[4]).items():
    Path(link).parent.mkdir(parents=True, exist_ok=True)
    Path("/dev", node).touch()
    Path(link).symlink_to(os.path.relpath(f"/dev/{node}", os.path.dirname(link)))
data = Path("/run/udev/data")
data.mkdir(parents=True)
for member, pool in json.loads(sys.argv[2]).items():
    number = Path(f"/sys/class/block/{member}/dev").read_text().strip()
    label = f"E:ID_FS_LABEL={pool}\\n" if pool else ""
    (data / f"b{number}").write_text(f"E:ID_FS_TYPE=zfs_member\\n{label}V:1\\n")
answers = []
stdout = os.dup(1)
for words in json.loads(sys.argv[1]):
    for number, name in ((1, "/run/output"), (2, "/run/messages")):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    code = exec(words[1]) if words[0] == "-c" else main(words)
    sys.stdout.flush()
    sys.stderr.flush()
    answers.append((code, open("/run/output").read(), open("/run/messages").read()))
os.dup2(stdout, 1)
json.dump(answers, sys.stdout)
sys.stdout.flush()
"""
_PLAN = ("--profile", "oltp")
Answer = tuple[int | None, str, str]


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        build(stacks(), Path(folder))
        names = sorted(os.listdir(Path(folder, "sys/class/block")))
        lines = [f"8 {number} {name}{' 0' * 17}\n" for number, name in enumerate(names)]
        Path(folder, "proc/diskstats").write_text("".join(lines))
        yield Path(folder)


def run_all(
    root: Path, *commands: tuple[str, ...], site: Mapping[str, str] | None = None
) -> list[Answer]:
    """Return the exit code of each command, its standard output, and its messages in one line.

    ``site`` are files in /etc/hbatune. The command ``-c`` runs Python code, without an exit code.
    """
    words = [
        json.dumps(commands),
        json.dumps(ZFS_MEMBERS),
        json.dumps(site or {}),
        json.dumps(LINKS),
    ]
    command = [*OWN_CONFIGURATION, *_OWN_DEVICES, sys.executable, "-c", _RUN, *words]
    answers = json.loads(run(root, command, timeout=300))
    return [(code, output, " ".join(messages.split())) for code, output, messages in answers]


def test_name_means_disks_below(root: Path) -> None:
    texts = run_all(root, *(("list", name) for name in NAMES))
    documents = run_all(root, *(("list", name, "--json") for name in NAMES))
    for name, (code, _, messages), document in zip(NAMES, texts, documents, strict=True):
        disks, message = NAMES[name]
        assert (code, messages) == (0, f"hbatune: {message}" if message else "")
        assert {disk["target"] for disk in json.loads(document[1])["endpoints"]} == set(disks)
        assert document[2] == ""


@pytest.mark.parametrize(
    "words",
    [
        *(("diff", *_PLAN), ("explain", *_PLAN), ("check",), ("history",), ("rollback",)),
        *(("watch", "--count", "1", "--interval", "0.1"), ("apply", "--dry-run", *_PLAN)),
        ("probe", "qd1"),
    ],
    ids=lambda words: words[0],
)
def test_every_command_takes_name(root: Path, words: tuple[str, ...]) -> None:
    for name, answer in zip(NAMES, run_all(root, *((*words, name) for name in NAMES)), strict=True):
        code, output, messages = answer
        disks, message = NAMES[name]
        # Described disks have no nodes, so no disk is probed.
        assert code in ((1,) if words[0] == "probe" else (0, 1)), messages
        assert message in messages
        if words[0] in ("explain", "probe"):
            assert any(disk in output for disk in disks)


@pytest.mark.parametrize(
    ("words", "key"),
    [
        *((("diff", *_PLAN), "rows"), (("apply", "--dry-run", *_PLAN), "rows")),
        *((("watch", "--count", "1", "--interval", "0.1"), "readings"), (("check",), "findings")),
    ],
    ids=lambda argument: argument[0] if isinstance(argument, tuple) else "",
)
def test_documents_have_only_disks_below_name(root: Path, words: tuple[str, ...], key: str) -> None:
    answers = run_all(root, *((*words, "--json", name) for name in NAMES))
    targets_by_name = {}
    for name, (_, output, _) in zip(NAMES, answers, strict=True):
        targets = {entry["target"] for entry in json.loads(output)[key]}
        targets_by_name[name] = targets - {"machine"}
        disks = set(NAMES[name][0])
        if key == "findings":
            assert targets <= disks | {"machine"}, name
        else:  # no rule sets anything on the map itself
            assert targets == disks - ({"dm-3"} if key == "rows" else set()), name
    # A finding about several disks names the first.
    assert targets_by_name["/srv"] >= {"sda"}
    assert targets_by_name["/dev/zvol/tank/x"] >= {"sdi"}


def test_apply_reports_other_uses(root: Path) -> None:
    apply = ("apply", "--dry-run", *_PLAN)
    answers = run_all(
        root,
        (*apply, "vg-0/pg-data", "/boot"),
        ("diff", *_PLAN, "/srv"),
        (*apply, "--json", "/srv"),
        (*apply, "sdi9"),
        (*apply, "tank", "/dev/zvol/tank/x", "/media"),
        (*apply, "sdh1"),
    )
    messages = [answer[2] for answer in answers]
    assert "the same disks also carry /home, vg-0/home" in messages[0]
    assert "the same disks also carry /opt, secret" in messages[0]
    assert "carry /srv" not in messages[0]
    assert messages[2] == (
        "hbatune: /srv is on vg-0/pg-data, on md127, on sda and sdb "
        "hbatune: the same disks also carry /home, vg-0/home"
    )
    assert "the same disks also carry /tmp, /var/tmp, tank" in messages[3]
    assert "carry" not in messages[1] + messages[4]
    assert "the same disks also carry media0" in messages[5]


@pytest.mark.parametrize(
    "words",
    [
        *(("probe", "--destructive", "qd1-writes"), ("autotune", "--destructive", *_PLAN)),
        *(("apply", "--destructive", *_PLAN), ("probe", "--destructive", "--mix", "0")),
    ],
    ids=" ".join,
)
def test_stack_is_never_destroyed(root: Path, words: tuple[str, ...]) -> None:
    names = [name for name, (_, message) in NAMES.items() if message]
    answers = run_all(root, *((*words, name) for name in names))
    for name, (code, _, messages) in zip(names, answers, strict=True):
        assert code == 2
        assert f"hbatune: {NAMES[name][1]} with --destructive, name the empty disk" in messages


_STOP = """
for name in ("dm-0", "dm-1", "md127"):
    os.unlink(f"/sys/class/block/{name}")
"""
_PRINT_RECORD = """
from hbatune.act import rollback_record
from hbatune.act.paths import Paths
print(json.dumps(rollback_record.load(Paths()).ids))
"""


def test_rollback_of_name_holds_without_stack(built: Callable[[Described], Path]) -> None:
    """The record has the ids of the disks, so it does not depend on the array."""
    rule = (
        '[[rule]]\nname = "a"\nsetting = "rq_affinity"\nvalue = 2\nbecause = "b"\nsource = "site"\n'
    )
    apply = ("apply", "--profile", "small", "--no-probe", "--json")
    answers = run_all(
        built(stacks()),
        apply,
        ("rollback", "md127", "--json"),
        ("-c", _PRINT_RECORD),
        apply,
        ("-c", _STOP),
        apply,
        ("list", "md127"),
        site={"profiles/small.toml": f'title = "small"\n{rule}'},
    )
    first, rollback, record, *later = (json.loads(answer[1]) for answer in answers[:4])
    ids = {row["target"]: row["id"] for row in first["rows"]}
    assert {row["outcome"] for row in first["rows"]} == {"written"}
    assert {row["target"]: row["outcome"] for row in rollback["rows"]} == dict.fromkeys(
        MIRROR, "written"
    )
    assert sorted(record) == sorted(ids[disk] for disk in MIRROR)
    for plan in (*later, json.loads(answers[5][1])):
        excluded = {row["target"] for row in plan["rows"] if row["state"] == "excluded"}
        assert excluded == {*MIRROR}
        assert {row["outcome"] for row in plan["rows"]} == {None, "kept"}
    assert "no target 'md127'" in answers[6][2]


def test_name_without_disk_is_unknown(root: Path) -> None:
    unknown = {
        "vg-0/none": "no target 'vg-0/none' on this machine",
        "/srv/none": "no target '/srv/none' on this machine",
        "srv": "no target 'srv' on this machine",
        "loop0": "no target 'loop0' on this machine",
        "/usr/local/bin": "/usr/local/bin is on loop0 hbatune: no target 'loop0'",
    }
    answers = run_all(root, *(("diff", *_PLAN, name) for name in unknown))
    for message, (code, _, messages) in zip(unknown.values(), answers, strict=True):
        assert code == 2
        assert message in messages


def test_list_shows_names_in_use(root: Path) -> None:
    answers = run_all(root, ("list", "--all"), ("list", "--json"), ("list",))
    lines = {line.split()[0]: line for line in answers[0][1].splitlines() if line.startswith("sd")}
    uses = {
        "sda": "/home /srv md127 vg-0/home vg-0/pg-data ",
        "sdc": "/boot /opt secret ",
        "sdd": "bcache0 ",
        "sde": "/mnt mpatha vg1/data ",
        "sdg": "/media media0 ",
        "sdi": "/tmp /var/tmp tank ",
        "sdj": "/tmp /var/tmp tank ",
        "sdk": "zfs_member ",
    }
    for disk, text in uses.items():
        assert f"  {text} " in lines[disk]
    assert any(
        line.startswith("dm-3 (mpatha) ") and " /mnt vg1/data " in line
        for line in answers[0][1].splitlines()
    )
    assert "dm-3 (mpatha) over sde sdf" in answers[2][1]
    disks = {disk["target"]: disk for disk in json.loads(answers[1][1])["endpoints"]}
    assert disks["dm-3"]["alias"] == "mpatha"
    assert disks["dm-3"]["volumes"] == ["vg1/data"]
    assert disks["sdi"]["volumes"] == ["tank"]
    assert disks["sdi"]["mounts"] == ["/tmp", "/var/tmp"]
    assert (disks["sdb"]["alias"], disks["sdb"]["held"]) == (None, True)


@pytest.mark.parametrize(
    ("name", "disks"),
    [
        *(("md127", {*MIRROR}), ("/dev/md127", {*MIRROR}), ("vg-0/pg-data", {*MIRROR})),
        *(("/srv", {*MIRROR}), ("tank", {*ZPOOL}), ("/var/tmp", {*ZPOOL}), ("sdc2", {"sdc"})),
        *(("mpatha", {"sde", "sdf"}), ("/mnt", {"sde", "sdf"}), ("/srv/none", set())),
    ],
)
def test_site_excludes_disks_below_name(root: Path, name: str, disks: set[str]) -> None:
    configuration = {"hbatune.toml": f"[site]\nexclude = [{json.dumps(name)}]\n"}
    commands = (("diff", *_PLAN, "--json"), ("config", "check"))
    [plan, check] = run_all(root, *commands, site=configuration)
    rows = json.loads(plan[1])["rows"]
    assert {row["target"] for row in rows if row["state"] == "excluded"} == disks
    for answer in (plan, check):
        assert ("does not match a disk" in answer[2]) == (not disks)


def test_site_exclusion_ends_with_stack(built: Callable[[Described], Path]) -> None:
    diff = ("diff", *_PLAN, "--json")
    configuration = {"hbatune.toml": '[site]\nexclude = ["md127"]\n'}
    before, _, after = run_all(built(stacks()), diff, ("-c", _STOP), diff, site=configuration)
    for answer, disks in ((before, {*MIRROR}), (after, set())):
        rows = json.loads(answer[1])["rows"]
        assert {row["target"] for row in rows if row["state"] == "excluded"} == disks
        assert ("does not match a disk" in answer[2]) == (not disks)


def test_plan_shows_settings_that_decide(root: Path) -> None:
    plan = ("--profile", "throughput")
    answers = run_all(
        root,
        ("diff", *plan),
        ("diff", *plan, "--json", "/mnt"),
        ("apply", "--dry-run", *plan, "sda"),
        ("explain", *plan, "sdd", "read_ahead_kb"),
        ("explain", *plan, "--json", "sda"),
        ("explain", *plan, "sdh"),
    )
    texts = [" ".join(answer[1].split()) for answer in answers]
    assert "dm-0 dm-1 md127 (vg-0/home vg-0/pg-data) sda sdb - 1280 128" in texts[0]
    assert "dm-3 (mpatha) sde sdf mq-deadline - 128" in texts[0]
    assert "read_ahead_kb counts" in texts[0]
    assert "dm-0 dm-1 md127 (vg-0/home vg-0/pg-data) sda sdb - 1280 128" in texts[2]
    assert "bcache0 sdd - - 128" in texts[3]
    assert "Devices on these disks" not in texts[5]
    devices = {item["target"]: item for item in json.loads(answers[1][1])["stacks"]}
    assert devices == {
        "dm-3": {
            **{"target": "dm-3", "label": "mpatha", "disks": ["sde", "sdf"], "holders": ["dm-4"]},
            "settings": {"scheduler": "mq-deadline", "read_ahead_kb": 128},
        },
        "dm-4": {
            **{"target": "dm-4", "label": "vg1/data", "disks": ["dm-3"], "holders": []},
            "settings": {"read_ahead_kb": 128},
        },
    }
    explained = json.loads(answers[4][1])["stacks"]
    assert [item["target"] for item in explained] == ["dm-0", "dm-1", "md127"]


_SCAN = """
import json, sys
from hbatune.facts.machine import KnownMachine, Scope, gather_machine
full = gather_machine(())
scopes = [Scope((name,), known) for name in sys.argv[1:] for known in (None, KnownMachine(full))]
print(json.dumps([[e.target for e in gather_machine((), scope).endpoints] for scope in scopes]))
"""


def test_members_of_stack_are_scanned_together(root: Path) -> None:
    """The values of one member depend on the other ones."""
    scanned = json.loads(run(root, [sys.executable, "-c", _SCAN, "sda", "sdd", "dm-3", "sdh"]))
    assert [sorted(names) for names in scanned] == [
        *[["sda", "sdb"]] * 2,
        *[["sdd"]] * 2,
        *[["dm-3", "sde", "sdf"]] * 2,
        *[["sdg", "sdh"]] * 2,
    ]


def test_many_volumes_do_not_separate_members(built: Callable[[Described], Path]) -> None:
    """A volume on a map and a disk joins the map's paths with this disk."""
    volumes = [
        Mapped(Disk(f"dm-{number}", tags=None), "LVM-c", below, name=f"vg2-{number}")
        for number, below in enumerate([("dm-3", "sdd"), *[("sda", "sdb")] * 300], start=10)
    ]
    host = stacks()
    root = built(replace(host, mapped=(*host.mapped, *volumes)))
    scanned = json.loads(run(root, [sys.executable, "-c", _SCAN, "sda", "sde"]))
    assert [sorted(names) for names in scanned] == [
        *[["sda", "sdb"]] * 2,
        *[["dm-3", "sdd", "sde", "sdf"]] * 2,
    ]


@pytest.mark.parametrize(
    ("use", "disks"),
    [
        *(("zfs", {"sdi", "sdj", "sdk"}), ("/srv", {"sda", "sdb"}), ("bcache0", {"sdd"})),
        *(("tank", {"sdi", "sdj"}), ("/mnt", {"dm-3", "sde", "sdf"}), ("[SWAP]", set())),
        *(("postgresql", {"sdc", "dm-3", "sde", "sdf"}), ("vg-0/home", {"sda", "sdb"})),
        ("media0", {"sdg", "sdh"}),
    ],
)
def test_rule_names_a_use(root: Path, use: str, disks: set[str]) -> None:
    rule = {"name": "of-use", "setting": "nomerges", "value": 1, "when": {"use": use}}
    files = {
        "hbatune.toml": '[site.uses]\npostgresql = ["sdc", "dm-3"]\n',
        "rules.d/use.toml": "[[rule]]\n"
        + "".join(f"{key} = {json.dumps(value)}\n" for key, value in rule.items() if key != "when")
        + f'when = {{ use = [{json.dumps(use)}] }}\nbecause = "a test"\nsource = "site"\n',
    }
    if use != "postgresql":
        files.pop("hbatune.toml")
    [(code, output, messages)] = run_all(root, ("diff", *_PLAN, "--json"), site=files)
    assert code == 1 or not disks, messages
    rows = json.loads(output)["rows"]
    assert {row["target"] for row in rows if row["rule"] == "of-use"} == disks


_RESOLVE_POOLS = """
import json, re, sys
from pathlib import Path
from hbatune.facts import devices
devices._POOLS = "/run/kstat"  # this kernel may not have the module
for directory in ("tank", "backup"):
    Path("/run/kstat", directory).mkdir(parents=True)
for file in ("arcstats", "zil"):
    Path("/run/kstat", file).touch()
entries = Path("/run/udev/data")
entries.mkdir(parents=True)
pools = json.loads(sys.argv[1])
others = "".join(f"E:ID_OTHER_{number}=a0b1c2d3e4f5\\n" for number in range(60))
for directory in Path("/sys/class/block").iterdir():
    pool = pools.get(directory.name)
    label = f"E:ID_FS_LABEL={pool}\\n" if pool else ""
    kind = "zfs_member" if directory.name in pools else "ext4"
    name = "b" + (directory / "dev").read_text().strip()
    (entries / name).write_text(f"I:1000\\n{others}{label}E:ID_FS_TYPE={kind}\\nV:1\\n")
(entries / "b8:999").write_text("E:ID_FS_LABEL=tank\\nE:ID_FS_TYPE=zfs_member\\n")  # removed
(entries / "c8:0").write_text("E:ID_FS_LABEL=tank\\nE:ID_FS_TYPE=zfs_member\\n")  # not a disk
def count_reads():
    return int(re.search(r"syscr: (\\d+)", Path("/proc/self/io").read_text())[1])
answers = {}
for name in sys.argv[2:] * 2:  # the first time loads modules
    before = count_reads()
    stack = devices.find_named_stack(name)
    answers[name] = stack.disks if stack else (), count_reads() - before
print(json.dumps([len(list(entries.iterdir())), answers]))
"""


def test_pool_reads_each_device_once(built: Callable[[Described], Path]) -> None:
    """Among thousands of LUNs, more would take longer than any other name."""
    machine = build_many_luns(200, 1)
    maps = [
        Mapped(
            Disk(f"dm-{number}"), f"mpath-{number}", (), name="zil" if number == 7 else f"{number}"
        )
        for number in range(200)
    ]
    root = built(replace(machine, mapped=tuple(maps), modules={"zfs": {}}))
    pools = {"sda": "tank", "dm-3": "tank", "sdb": "backup", "sdc": "exported", "sdd": None}
    names = {"tank": {"sda", "dm-3"}, "backup": {"sdb"}, "exported": set(), "zil": {"dm-7"}}
    command = [sys.executable, "-c", _RESOLVE_POOLS, json.dumps(pools), *names]
    entries, answers = json.loads(run(root, command))
    assert {name: {*disks} for name, (disks, _) in answers.items()} == names
    assert entries > 400
    for name in ("tank", "backup"):
        assert answers[name][1] < 1.1 * entries
    # Only the names of maps are read, without udev's links to them.
    assert answers["exported"][1] < 1.1 * entries / 2


def test_snapshot_knows_alias_of_map(root: Path) -> None:
    snapshot = ("--snapshot", "/run/host.snapshot")
    answers = run_all(root, ("snapshot", "/run/host.snapshot"), ("list", *snapshot, "mpatha"))
    assert [answer[0] for answer in answers] == [0, 0]
    assert "dm-3 (mpatha)" in answers[1][1]
