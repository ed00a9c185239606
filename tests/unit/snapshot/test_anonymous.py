"""An anonymous snapshot: nothing of whose it is, and otherwise the same facts."""

import gzip
import re
import string
from pathlib import Path

import msgspec
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from hbatune.facts import ids
from hbatune.facts.health import Mount, TunedProfile, TunedWrite, UdevDisks, UdevRule
from hbatune.facts.model import Attribute, Kind, Machine, Missing, Reason, StackedDevice
from hbatune.plan.make import make_plan
from hbatune.plan.rows import RevertedValue
from hbatune.policy.config import ApprovedVersions, Site, SiteArray
from hbatune.policy.match import with_uses
from hbatune.policy.profile import Exactly, Match, Origin, Rule
from hbatune.policy.vendors import list_uses, load_vendors
from hbatune.shipped import find_shipped
from hbatune.snapshot.anonymous import anonymise_snapshot
from hbatune.snapshot.file import Snapshot, decode_snapshot, encode_snapshot
from tests.unit.check_inputs import health
from tests.unit.machines import ABSENT, adapter, control, endpoint, machine
from tests.unit.profiles import profile
from tests.unit.snapshots import snapshot

KEY = b"k" * 32
PATH = "0000:01:00.0/0:0:0:0"

hexadecimal = st.text("0123456789abcdef", min_size=16, max_size=32).filter(
    lambda text: any(map(str.isdigit, text))
)
wwns = st.one_of(
    hexadecimal.map("naa.{}".format),
    hexadecimal.map("0x{}".format),
    hexadecimal.map("eui.{}".format),
)
serials = st.text(string.ascii_uppercase + string.digits, min_size=8, max_size=20).filter(
    lambda text: any(map(str.isdigit, text))
)
hostnames = st.from_regex(r"[a-z]{4,12}[0-9]{2}(\.[a-z]{3,8}\.example)?", fullmatch=True)


def content(captured: Snapshot) -> str:
    """Return the decompressed text of the snapshot file."""
    return gzip.decompress(encode_snapshot(captured)).decode()


def full(hostname: str, wwn: str, serial: str) -> Snapshot:
    """Return a snapshot with these names in every field that can hold a name."""
    drives = (
        endpoint(id=f"{wwn}@{PATH}", mounts=(f"/srv/{hostname}", f"/mnt/{serial}_old")),
        endpoint(target="sdb", id=f"SEAGATE-XS400ME70084-{serial}@{PATH[:-1]}1"),
        endpoint(target="dm-0", adapter=None, kind=Kind.MAP, id=f"mpath-{wwn}", host=None),
    )
    host = msgspec.structs.replace(
        machine(*drives, adapters=(adapter(firmware=f"1.0-{hostname}"),)),
        hostname=hostname,
        kernel=f"6.1.0-{hostname}",
    )
    rules = profile(("scheduler", Exactly("none")))
    private_rule = msgspec.structs.replace(
        rules.rules[0],
        because=f"on {hostname}",
        name=f"{hostname}-rule",
        file=f"/{hostname}.toml",
        origin=Origin.SITE,
    )
    fares = health(
        host,
        mounts=(Mount(f"/srv/{hostname}", ("rw",)),),
        udev_rules=(UdevRule(f"/etc/udev/rules.d/{hostname}.rules", 1, "queue/scheduler", wwn),),
    )
    site = Site(
        members={wwn: 5, f"{serial}": 4},
        array=(SiteArray(name=hostname, hosts=2, targets=(wwn, "sda")),),
        exclude=(wwn, "sdb", "gone-0x5000c500aabbccdd", hostname),
        approved=(ApprovedVersions("mpt3sas", firmware=(f"1.0-{hostname}",)),),
    )
    captured = snapshot(
        host,
        msgspec.structs.replace(
            rules, rules=(private_rule,), title=f"for {hostname}", origin=Origin.SITE
        ),
        active=rules.name,
        site=site,
        rolled_back=(f"{wwn}@{PATH}", f"{serial}@nowhere"),
    )
    tried = (RevertedValue(f"{wwn}@{PATH}", "nr_requests", 2048),)
    policy = msgspec.structs.replace(captured.policy, reverted=tried)
    return msgspec.structs.replace(captured, health=fares, policy=policy)


NEUTRAL = content(full("h", "w", "s"))


@given(hostnames, wwns, serials)
@example("vdaa00", "naa.5000c500a1b2c3d4", "S45NNA0M123456")  # like a disk of the kernel's
def test_file_omits_all_names(hostname: str, wwn: str, serial: str) -> None:
    short = hostname.partition(".")[0]
    bare = wwn.replace("0x", "").rpartition(".")[2]
    secrets = {hostname, short, wwn, bare, serial}
    assume(not any(secret in NEUTRAL for secret in secrets))
    text = content(anonymise_snapshot(full(hostname, wwn, serial)))
    assert [secret for secret in secrets if secret.lower() in text.lower()] == []


def test_file_omits_unit_names() -> None:
    captured = full("db1", "naa.5000c500a1b2c3d4", "S45NNA0M123456")
    shares = {"io.bfq.weight": ("acme-payroll.service",)}
    fares = msgspec.structs.replace(captured.health, io_shares=shares)
    text = content(anonymise_snapshot(msgspec.structs.replace(captured, health=fares)))
    assert "io.bfq.weight" in text
    assert "payroll" not in text


def test_snapshots_share_no_pseudonyms() -> None:
    captured = full("db1", "naa.5000c500a1b2c3d4", "S45NNA0M123456")
    first, second = anonymise_snapshot(captured), anonymise_snapshot(captured)
    assert first.anonymous
    assert {e.id for e in first.machine.endpoints}.isdisjoint(
        e.id for e in second.machine.endpoints
    )
    assert first.machine.hostname != second.machine.hostname


def test_file_omits_key() -> None:
    text = content(
        anonymise_snapshot(full("db1", "naa.5000c500a1b2c3d4", "S45NNA0M123456"), key=KEY)
    )
    assert KEY.decode() not in text
    assert KEY.hex() not in text


def test_pseudonyms_stay_distinct() -> None:
    ways = [f"naa.5000c500a1b2c3d4@0000:0{n}:00.0/{n}:0:0:0" for n in (1, 2)]
    second_id = "naa.5000c500a1b2c3d5@0000:01:00.0/1:0:1:0"
    drives = (endpoint(target=f"sd{n}", id=id) for n, id in enumerate((*ways, second_id)))
    first, second, third = anonymise_snapshot(snapshot(machine(*drives))).machine.endpoints
    assert first.id.endswith("@0000:01:00.0/1:0:0:0")
    # Two paths of one LUN are known by its name, as before.
    assert first.id.partition("@")[0] == second.id.partition("@")[0]
    assert first.id.partition("@")[0] != third.id.partition("@")[0]


@pytest.mark.parametrize(
    ("route", "kernel_part"),
    [
        ("0000:01:00.0/sas-0x5000c500a1b2c3d5-lun-3", r"0000:01:00\.0/anon-\w{16}-lun-3"),
        ("0000:01:00.0/fc-0x500601613b240f3a-lun-0", r"0000:01:00\.0/anon-\w{16}-lun-0"),
        ("iscsi/ip-10.0.0.1:3260-iscsi-iqn.2003-01.org.x:db-lun-1", r"iscsi/anon-\w{16}-lun-1"),
        ("nvme-tcp/10.0.0.1:4420/nqn.2014-08.org.x:db", r"nvme-tcp/anon-\w{16}"),
        ("0000:01:00.0/host-1-scsi-0:2:0", r"0000:01:00\.0/host-1-scsi-0:2:0"),
        ("0000:01:00.0/ata-3", r"0000:01:00\.0/ata-3"),
        ("0000:01:00.0/scsi-0:2:0~1:0:2:0", r"0000:01:00\.0/scsi-0:2:0~1:0:2:0"),
        ("0000:04:00.0", r"0000:04:00\.0"),
    ],
)
def test_route_retains_kernel_part(route: str, kernel_part: str) -> None:
    of_adapter = control(id=f"controller-0@{route}")
    captured = snapshot(
        machine(endpoint(id=f"naa.5000c500a1b2c3d4@{route}"), controls=(of_adapter,))
    )
    anonymous = anonymise_snapshot(captured)
    assert re.fullmatch(rf"anon-\w{{16}}@{kernel_part}", anonymous.machine.endpoints[0].id)
    assert re.fullmatch(rf"controller-0@{kernel_part}", anonymous.machine.controls[0].id)


@pytest.mark.parametrize(
    "spelling", ["wwn-0x5000C500A1B2C3D4", "/dev/disk/by-id/scsi-35000c500a1b2c3d4"]
)
def test_respelled_exclusion_still_matches(spelling: str) -> None:
    drive = endpoint(id="naa.5000c500a1b2c3d4@0000:01:00.0/scsi-0:1:0")
    captured = snapshot(machine(drive))
    site = Site(exclude=(spelling,), uses={"oracle-asm": (spelling, "/dev/sda")})
    policy = msgspec.structs.replace(captured.policy, site=site)
    anonymous = anonymise_snapshot(msgspec.structs.replace(captured, policy=policy))
    name = anonymous.machine.endpoints[0].id.partition("@")[0]
    assert anonymous.policy.site.exclude == (name,)
    assert anonymous.policy.site.uses == {"oracle-asm": (name, "/dev/sda")}


def test_rule_for_private_use_still_matches() -> None:
    drive = endpoint(mounts=("/acme",), volumes=("acme/pg", "tank"))
    when = Match(use=("/acme", "acme/pg", "customers", "zfs"))
    own = Rule("own", when, "nomerges", Exactly(1), "b", "site", "x.toml", Origin.SITE)
    base = profile()
    profiles = (msgspec.structs.replace(base, rules=(own,), origin=Origin.SITE),)
    captured = snapshot(
        msgspec.structs.replace(machine(drive), stacks=(StackedDevice("tank", "tank", ("sda",)),))
    )
    site = Site(uses={"customers": ("sda",), "oracle-asm": ("sda",)})
    policy = msgspec.structs.replace(captured.policy, site=site, profiles=profiles)
    hidden = anonymise_snapshot(msgspec.structs.replace(captured, policy=policy))
    assert "acme" not in str(hidden)
    assert "customers" not in str(hidden)
    [own] = hidden.policy.profiles[0].rules
    [disk] = with_uses(hidden.machine, hidden.policy.site, hidden.policy.profiles[0]).endpoints
    assert set(disk.used_for) == set(own.when.use) - {"zfs"}
    assert own.when.use[-1] == "zfs"
    assert hidden.machine.stacks[0].label == disk.volumes[1] != "tank"


def test_uses_of_vendors_are_public() -> None:
    uses = list_uses(load_vendors(find_shipped("rules")))
    captured = snapshot(machine(endpoint()))
    site = Site(uses=dict.fromkeys(uses, ("sda",)))
    policy = msgspec.structs.replace(captured.policy, site=site)
    hidden = anonymise_snapshot(msgspec.structs.replace(captured, policy=policy))
    assert tuple(hidden.policy.site.uses) == uses


def test_names_of_volumes_are_hidden() -> None:
    uuids = {
        "mpath-36000c29a1b2c3d4e5f60718293a4b5c6": r"mpath-anon-\w{16}",
        "LVM-8Bwyu3HKrv5sSNTifv6uCZ5XTkJoMXeDqnM2y0UBlhvqnWI9c7wnycMqKT4EPnd4": r"LVM-anon-\w{16}",
        "CRYPT-LUKS2-0f3e2d1c0b9a48878695a4b3c2d1e0f1-customer": r"CRYPT-LUKS2-anon-\w{16}",
        "customer": r"-?anon-\w{16}",
    }
    for uuid, pattern in uuids.items():
        files = {"holders/dm-0/dm/uuid": Attribute(uuid, False), "holders/acme/dm/uuid": ABSENT}
        files["sda1/holders/acme/queue/max_sectors_kb"] = Attribute("512", False)
        drive = endpoint(attributes=files, holders=("dm-0", "acme"))
        [hidden] = anonymise_snapshot(snapshot(machine(drive))).machine.endpoints
        [(file, text), (other, _), (below, _)] = hidden.attributes.items()
        assert file == "holders/dm-0/dm/uuid"
        assert isinstance(text, Attribute)
        assert re.fullmatch(pattern, text.text)
        assert other == f"holders/{hidden.holders[1]}/dm/uuid"
        assert below == f"sda1/holders/{hidden.holders[1]}/queue/max_sectors_kb"
        assert "acme" not in other + below


@pytest.mark.parametrize(
    ("release", "pattern"),
    [
        ("6.12.43+deb12-amd64", r"6\.12\.43\+deb12-amd64"),
        ("6.1.0-customer-build7", r"6\.1\.0-anon-\w{16}"),
        ("customer", r"-?anon-\w{16}"),
    ],
)
def test_kernel_release_keeps_its_numbers(release: str, pattern: str) -> None:
    host = msgspec.structs.replace(machine(), kernel=release)
    assert re.fullmatch(pattern, anonymise_snapshot(snapshot(host)).machine.kernel)


def test_shipped_rules_keep_their_texts() -> None:
    captured = snapshot(machine(), profile(("scheduler", Exactly("none"))))
    assert anonymise_snapshot(captured).policy.profiles[0].rules[0].because == (
        captured.policy.profiles[0].rules[0].because
    )


def test_udev_rules_keep_their_disks() -> None:
    globs = ("sd[a-z]", "nvme[0-9]*n[0-9]*", "sd*", "acme*")
    rule = UdevRule(
        "/etc/udev/rules.d/acme.rules", 1, "queue/scheduler", "none", disks=UdevDisks(globs)
    )
    captured = snapshot(machine())
    fares = msgspec.structs.replace(captured.health, udev_rules=(rule,))
    [hidden] = anonymise_snapshot(msgspec.structs.replace(captured, health=fares)).health.udev_rules
    assert isinstance(hidden.disks, UdevDisks)
    assert hidden.disks.kernels[:3] == globs[:3]
    assert re.fullmatch(r"anon-\w{16}", hidden.disks.kernels[3])
    assert (hidden.attribute, hidden.value) == (rule.attribute, rule.value)


def test_nameless_drive_stays_nameless() -> None:
    drive = endpoint(id=f"SEAGATE-XS400ME70084@{PATH}")
    assert ids.is_nameless(drive)
    [hidden] = anonymise_snapshot(snapshot(machine(drive))).machine.endpoints
    assert ids.is_nameless(hidden)


def test_exclusions_survive_anonymising() -> None:
    captured = full("db1", "naa.5000c500a1b2c3d4", "S45NNA0M123456")
    anonymous = anonymise_snapshot(captured)
    ids = [drive.id for drive in anonymous.machine.endpoints]
    assert anonymous.policy.site.exclude[:2] == (ids[0].partition("@")[0], "sdb")
    assert anonymous.policy.rolled_back[0] == ids[0]
    assert anonymous.policy.reverted == (RevertedValue(ids[0], "nr_requests", 2048),)
    assert anonymous.policy.site.members[ids[0].partition("@")[0]] == 5
    assert anonymous.policy.site.array[0].targets == (ids[0].partition("@")[0], "sda")
    assert not anonymous.policy.site.exclude[2].startswith("gone")


def test_anonymous_plan_is_identical() -> None:
    captured = full("db1", "naa.5000c500a1b2c3d4", "S45NNA0M123456")
    anonymous = decode_snapshot(encode_snapshot(anonymise_snapshot(captured)), Path("x"))

    def rows(host_snapshot: Snapshot) -> list[tuple[object, ...]]:
        [active] = host_snapshot.policy.profiles
        planned = make_plan(host_snapshot.machine, active).rows
        return [(row.target, row.setting, row.current, row.value, row.state) for row in planned]

    assert rows(anonymous) == rows(captured)


def test_kernel_like_hostname_preserves_facts() -> None:
    for hostname in ("sda", "host0", "mpt3sas", "none", "queue"):
        named: Machine = msgspec.structs.replace(machine(), hostname=hostname)
        anonymous = anonymise_snapshot(snapshot(named, profile(("scheduler", Exactly("none")))))
        [drive], [was] = anonymous.machine.endpoints, named.endpoints
        assert (drive.target, drive.family, drive.host) == (was.target, was.family, was.host)
        assert (drive.sysfs, drive.attributes) == (was.sysfs, was.attributes)
        assert anonymous.machine.hostname != hostname
        assert anonymous.policy.profiles[0].rules[0].effect == Exactly("none")


def test_private_mounts_are_renamed() -> None:
    points = ("/", "[SWAP]", "/home/jane.doe", "/acme/billing")
    server = machine(endpoint(mounts=points))
    options = health(server, mounts=tuple(Mount(point, ("rw", "noatime")) for point in points))
    anonymous = anonymise_snapshot(
        msgspec.structs.replace(snapshot(server), health=options), key=KEY
    )
    [drive] = anonymous.machine.endpoints
    assert drive.mounts[:2] == ("/", "[SWAP]")
    assert re.fullmatch(r"/home/anon-[0-9a-f]{16}", drive.mounts[2])
    assert re.fullmatch(r"(/anon-[0-9a-f]{16}){2}", drive.mounts[3])
    assert tuple(mount.point for mount in anonymous.health.mounts) == drive.mounts, (
        "they still match"
    )
    assert not re.search("jane|acme|billing", content(anonymous))


def test_private_profiles_are_renamed() -> None:
    private = TunedWrite("/etc/tuned/acme-db/tuned.conf", "queue/scheduler", "none")
    base = TunedWrite("/usr/lib/tuned/balanced/tuned.conf", "queue/read_ahead_kb", ">4096")
    captured = snapshot(machine())

    def anonymise_tuned(tuned: TunedProfile | Missing) -> TunedProfile | Missing:
        fares = msgspec.structs.replace(captured.health, tuned=tuned)
        return anonymise_snapshot(
            msgspec.structs.replace(captured, health=fares), key=KEY
        ).health.tuned

    renamed = anonymise_tuned(TunedProfile("balanced acme-db", (private, base)))
    assert isinstance(renamed, TunedProfile)
    assert "acme" not in str(renamed)
    assert re.fullmatch(r"/etc/tuned/anon-[0-9a-f]{16}/tuned.conf", renamed.writes[0].file)
    assert (renamed.writes[0].attribute, renamed.writes[1]) == ("queue/scheduler", base)
    shipped = TunedProfile("throughput-performance", (base,))
    assert anonymise_tuned(shipped) == shipped
    lost = Missing(Reason.UNREADABLE, text="no profile 'acme-db' is found")
    assert "acme" not in str(anonymise_tuned(lost))
