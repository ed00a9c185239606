"""An anonymous snapshot of a machine, each of whose files contains a name: it contains none."""

import gzip
import json
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hbatune.facts.families import declared
from hbatune.facts.model import Machine
from hbatune.snapshot.file import load_snapshot
from tests.hosts.conftest import ALL
from tests.hosts.families import describe
from tests.hosts.namespace import OWN_CONFIGURATION, run
from tests.hosts.tree import Described

Built = Callable[[Described], Path]

NAME, DIGITS = "Qz7405926133xK", "7405926133"
MACHINES = ("lab", "multipath", "mpi3mr", "fc_multipath", "nvme_shared", "iscsi_tcp", "hv_storvsc")

# Vendors, models and versions are public.
PUBLIC = {
    *("model", "vendor", "rev", "firmware_rev", "version", "device", "subsystem_vendor"),
    *("subsystem_device", *declared("model"), *declared("firmware"), *declared("version")),
}
# Files without which hbatune finds no device, and files of numbers.
STRUCTURE = {"uevent", "class", "type", "hidden", "dev", "size", "removable", "partition", "online"}
NUMBERS = re.compile(rb"[-0-9a-fx.,:/ ]*\n?|\d+(\.\d+)? GT/s PCIe\n|\d+ us\n")
SPEEDS = {"current_link_speed", "max_link_speed"}

CONFIGURATION = f"""
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

TAKE = f"""
import sys
from pathlib import Path
for name, text in {{
    "hbatune/hbatune.toml": {CONFIGURATION!r},
    "hbatune/rules.d/{NAME}.toml": {RULE!r},
    "udev/rules.d/99-{NAME}.rules": {UDEV_RULE!r},
}}.items():
    path = Path("/etc", name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
from tests.hosts.recorded import output
raise SystemExit(output(["snapshot", "--anonymous", sys.argv[1]])[0])
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


def take(root: Path, snapshot: Path) -> tuple[str, Machine]:
    run(root, [*OWN_CONFIGURATION, sys.executable, "-c", TAKE, str(snapshot)])
    return gzip.decompress(snapshot.read_bytes()).decode(), load_snapshot(snapshot).machine


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
