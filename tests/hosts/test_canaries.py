"""An anonymous snapshot of a machine, each of whose files contains a name: it contains none."""

import gzip
import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from hbatune.facts.families import families
from hbatune.facts.health import TunedProfile
from hbatune.facts.model import Machine
from hbatune.snapshot.file import load_snapshot
from tests.hosts.conftest import ALL
from tests.hosts.families import describe
from tests.hosts.namespace import OWN_CONFIGURATION, run
from tests.hosts.tree import Cpus, Described
from tests.lab.wheel import CHECKOUT

Built = Callable[[Described], Path]

NAME, DIGITS = "Qz7405926133xK", "7405926133"
MACHINES = ("lab", "multipath", "mpi3mr", "fc_multipath", "nvme_shared", "iscsi_tcp", "hv_storvsc")

# Vendors, models and versions are public.
PUBLIC = {
    *("model", "vendor", "rev", "firmware_rev", "version", "device", "subsystem_vendor"),
    "subsystem_device",
    *(name for family in families() for name in (*family.model, *family.firmware, *family.version)),
}
# Files without which hbatune finds no device, and files of numbers.
STRUCTURE = {"uevent", "class", "type", "hidden", "dev", "size", "removable", "partition", "online"}
NUMBERS = re.compile(rb"[-0-9a-fx.,:/ ]*\n?|\d+(\.\d+)? GT/s PCIe\n|\d+ us\n")
SPEEDS = {"current_link_speed", "max_link_speed"}

CONFIGURATION = f"""
profile = "{NAME}"
[site]
exclude = ["{NAME}", "wwn-0x5000c500{DIGITS}"]
[site.members]
"naa.6000c500{DIGITS}" = 4
[[site.array]]
name = "{NAME}"
hosts = 2
targets = ["naa.5000c500{DIGITS}"]
"""
RULE = f"""
[[rule]]
name = "{NAME}"
setting = "nr_requests"
value = 128
because = "{NAME} wants it"
source = "site: {NAME}"
"""
UDEV_RULE = f'KERNEL=="sd*", ENV{{ID_SERIAL}}=="{NAME}", ATTR{{queue/nr_requests}}="{NAME}"\n'

TUNED_CONF = f"""
[variables]
isolated_cores = {NAME}
include = /etc/tuned/variables.conf
[{NAME}]
type = disk
elevator = {NAME}
readahead = {NAME}
[sysfs]
/sys/block/{NAME}/queue/{NAME} = {NAME}
"""
# Udev's database of the first disk.
DATABASE = f"""
E:ID_SERIAL={NAME}
E:HBATUNE_SEEN={DIGITS}
E:HBATUNE_UNSET={NAME}:{NAME}
"""
MODPROBE = f"options megaraid_sas {NAME}={NAME}\n"
FILES = {
    "/etc/hbatune/hbatune.toml": CONFIGURATION,
    f"/etc/hbatune/rules.d/{NAME}.toml": RULE,
    f"/etc/hbatune/profiles/{NAME}.toml": f'title = "{NAME}"\n{RULE}',
    f"/etc/udev/rules.d/99-{NAME}.rules": UDEV_RULE,
    "/etc/udev/rules.d/89-hbatune.rules": UDEV_RULE,  # only its name is read
    "/etc/tuned/active_profile": f"{NAME}\n",
    f"/etc/tuned/profiles/{NAME}/tuned.conf": TUNED_CONF,
    "/etc/tuned/variables.conf": f"isolated_cores={NAME}\n",
    "/etc/tuned/tuned-main.conf": f"daemon = 0 # {NAME}\n",
    "/etc/default/irqbalance": f'IRQBALANCE_BANNED_CPULIST="{NAME}"\n',
    f"/etc/modprobe.d/{NAME}.conf": MODPROBE,
    "/etc/modprobe.d/hbatune.conf": MODPROBE,
    f"/run/{NAME}/{NAME}.sh": f"#!/bin/sh\necho {NAME}\n",  # only its name is read
    "/run/udev/data/b8:0": DATABASE,
}

# Runs in the namespace. A path is logged as soon as it is opened, by every worker too.
TAKE = r"""
import json, os, subprocess, sys
from pathlib import Path
snapshot, log, name, files, units = sys.argv[1:]
for file, text in json.loads(files).items():
    path = Path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
for pid, unit in json.loads(units).items():
    cgroup = Path(f"/run/cgroup-{pid}")
    cgroup.write_text(f"0::/system.slice/{unit}.service\n")
    subprocess.run(["mount", "--bind", str(cgroup), f"/proc/{pid}/cgroup"], check=True)
from hbatune.act import journal, rollback_record
from hbatune.act.paths import Paths
from hbatune.facts.assembly import read_boot_id
from hbatune.plan.rows import RevertedValue
from tests.hosts.recorded import output

paths = Paths()
rollback_record.record_rollback(paths, (name,))
reverted = RevertedValue(name, "nr_requests", name)
journal.save(paths.journal, journal.Journal(read_boot_id(), reverted=(reverted,)))
logging = False

def note_open(event, arguments):
    global logging
    if event == "open" and not logging:
        logging = True
        with open(log, "a") as file:
            file.write(f"{arguments[0]}\n")
        logging = False

sys.addaudithook(note_open)
raise SystemExit(output(["snapshot", "--anonymous", snapshot])[0])
"""


def list_files(root: Path) -> Iterator[Path]:
    """Yield the files that the machine's kernel would have: links are not followed."""
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder, name)
            if stat.S_ISREG(path.lstat().st_mode):
                yield path


def plant(root: Path, *, everywhere: bool) -> int:
    """Write names into files, and digits into half of those without numbers; count them."""
    planted = 0
    for path in list_files(root):
        content = path.read_bytes()
        if path.name in PUBLIC or path.name.startswith("vpd_pg8"):
            continue
        if not everywhere and (path.name in STRUCTURE or NUMBERS.fullmatch(content)):
            continue
        planted += 1
        has_digits = not everywhere and path.name not in SPEEDS and planted % 2
        text = DIGITS.encode() if has_digits else content.rstrip(b"\n") + NAME.encode()
        path.chmod(0o644)
        path.write_bytes(text + b"\n")
    return planted


def take(root: Path, snapshot: Path, units: Mapping[int, str] | None = None) -> tuple[str, Machine]:
    log = snapshot.with_suffix(".opened")
    words = [str(snapshot), str(log), NAME, json.dumps(FILES), json.dumps(units or {})]
    run(root, [*OWN_CONFIGURATION, sys.executable, "-c", TAKE, *words])
    return gzip.decompress(snapshot.read_bytes()).decode(), load_snapshot(snapshot).machine


# The described machine's tree. ``plant`` decides about each file in it.
TREE = re.compile(r"/sys/.*|/proc/(irq/.*|swaps|self/mountinfo)")
# Other files without names: numbers, names of programs and of systemd's units, hbatune's own files
# that such a host does not have, and files that packages install.
FIXED = re.compile(
    r"/proc/(\d+(/comm|/stat)?|meminfo|sys/kernel/random/boot_id)"
    r"|(/run|/var/lib)/hbatune/.*|/usr/lib/modprobe\.d/.*|/dev/null|.*\.py[co]?|.*\.so[.\d]*"
)

COMMAND_LINE = f"ro elevator={NAME} pci=nomsi,{NAME} isolcpus=managed_irq,{NAME} root={NAME}"
LOG = (
    f"sd 0:2:0:0: [sda] 2097152 512-byte logical blocks: {NAME}",
    f"critical medium error, dev sda, sector {DIGITS} op 0x0:(READ) flags {NAME} phys_seg 1",
)
GROUPS = {
    "cpuset.cpus.isolated": NAME,
    f"system.slice/{NAME}.service/io.weight": f"default 300\n{NAME} {DIGITS}",
    f"system.slice/{NAME}.service/io.bfq.weight": f"default 400\n{NAME} {DIGITS}",
}


@contextmanager
def started(name: str, *arguments: str, priority: str = "") -> Iterator[int]:
    """Run a process of this name, with these arguments and a canary in its environment."""
    body = f"printf {name} >/proc/self/comm && echo ready && read -r line"
    prefix = ["ionice", "-c", priority] if priority else []
    with subprocess.Popen(
        [*prefix, "sh", "-c", body, name, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PATH": os.environ["PATH"], "IRQBALANCE_BANNED_CPULIST": NAME, "HOME": NAME},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
        process.communicate(b"\n")


def list_unplanted(snapshot: Path, planted: Collection[str]) -> list[str]:
    """Return the files outside of the tree that were opened and can have a name, but no canary."""
    unplanted = []
    for path in set(snapshot.with_suffix(".opened").read_text().splitlines()):
        is_planted = path in FILES or path in planted
        is_ours = path.startswith((f"{CHECKOUT}/", f"{snapshot.parent}", sys.prefix))
        is_fixed = TREE.fullmatch(path) or FIXED.fullmatch(path)
        is_absolute = path.startswith(("/", "None"))  # other files are below an open directory
        if is_absolute and not (is_planted or is_ours or is_fixed):
            unplanted.append(path)
    return sorted(unplanted)


@pytest.mark.parametrize("runs", [True, False])
def test_no_decision_leaves_its_name(built: Built, tmp_path: Path, runs: bool) -> None:
    """TuneD and irqbalance run, or their files remain. The snapshot shows that all were read."""
    cpus = Cpus(command_line=COMMAND_LINE, default=NAME, cgroups=GROUPS)
    root = built(replace(describe("lab", ALL), cpus=cpus, log=LOG))
    with ExitStack() as stack:
        units = {}
        if runs:
            script = ("--policyscript", f"/run/{NAME}", NAME)
            units[stack.enter_context(started("irqbalance", *script))] = "irqbalance"
            units[stack.enter_context(started("tuned", f"--profile={NAME}"))] = "tuned"
            units[stack.enter_context(started("sleeper", NAME, priority="2"))] = NAME
        snapshot = tmp_path / "anonymous.snapshot"
        text, machine = take(root, snapshot, units)
    for canary in (NAME, DIGITS):
        position = text.lower().find(canary.lower())
        assert position < 0, text[max(0, position - 200) : position + 50]
    groups = [f"/proc/{pid}/cgroup" for pid in units]
    assert list_unplanted(snapshot, ["/proc/cmdline", "/dev/kmsg", *groups]) == []
    loaded = load_snapshot(snapshot)
    health, policy = loaded.health, loaded.policy
    assert isinstance(health.tuned, TunedProfile)
    assert len(health.tuned.writes) == 3
    assert health.daemons == {"irqbalance": runs, "tuned": runs}
    assert len(health.irq_policies) == runs
    assert set(health.io_shares) == {"io.weight", "io.bfq.weight", *(["ionice"] if runs else [])}
    assert all((health.elevator, health.msi_off, health.module_options, health.unset))
    assert health.disks["sda"].logged
    assert all((policy.rolled_back, policy.reverted, policy.rendered, policy.active))
    assert (machine.processors.balanced, machine.processors.irqaffinity) == ((), None)
    assert set(machine.processors.restrictions.values()) == {()}
    assert len(machine.processors.restrictions) == 3


@pytest.mark.parametrize("everywhere", [False, True])
@pytest.mark.parametrize("name", MACHINES)
def test_no_file_leaves_its_name(built: Built, tmp_path: Path, name: str, everywhere: bool) -> None:
    root = built(describe(name, ALL))
    assert plant(root, everywhere=everywhere) > 5
    text, machine = take(root, tmp_path / "anonymous.snapshot")
    for canary in (NAME, DIGITS):
        position = text.lower().find(canary.lower())
        assert position < 0, text[max(0, position - 200) : position + 50]
    if not everywhere:
        assert machine.endpoints
        assert machine.adapters


def test_each_name_on_a_real_route_is_hidden(built: Built, tmp_path: Path) -> None:
    root = built(describe("hv_storvsc", ALL))
    _, machine = take(root, tmp_path / "anonymous.snapshot")
    [disk, *_] = machine.endpoints
    assert "f8b3781a" not in json.dumps([disk.sysfs, disk.id])
    assert re.fullmatch(r"anon-\w{16}@anon-\w{16}/scsi-[0-9:]+", disk.id)
