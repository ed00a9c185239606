"""Every kind of target with every command that takes one, as root and as an ordinary user.

``python -m tests.hosts.matrix`` does that on a described machine, in forks of one process: Python
starts once. It prints a JSON list of what came of each cell (``Cell``).
"""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any
from unittest.mock import patch

from hbatune.act.paths import Paths
from hbatune.agent import status
from hbatune.cli import COMMANDS, main
from hbatune.facts import survey
from hbatune.facts.attributes import Attributes
from tests.hosts.machines import SSD_PAGE
from tests.hosts.tree import (
    Controller,
    Described,
    Disk,
    Function,
    Host,
    Lun,
    Mapped,
    Namespace,
    Odd,
    Subsystem,
    Values,
    Vector,
)
from tests.unit.statuses import good_status

NOBODY = 65534
UNKNOWN = "no such target"
ADMIN = "interrupt of the adapter itself"
WWN = "5000c50000000001"
NVME = ("0x1b36", "0x0010", "0x1af4", "0x1100")

KINDS = {
    "adapter": "0000:01:00.0",
    "adapter without disks": "0000:00:1f.2",
    "SCSI host": "host0",
    "SCSI host without disks": "host5",
    "NVMe controller": "nvme0",
    "NVMe controller of a subsystem": "nvme1",
    "disk": "sda",
    "device node": "/dev/sda",
    "link by id": f"/dev/disk/by-id/wwn-0x{WWN}",
    "name of a link by id": f"scsi-3{WWN}",
    "link to a partition": f"/dev/disk/by-id/wwn-0x{WWN}-part1",
    "WWN": f"naa.{WWN}",
    "map": "dm-0",
    "link to a map": "/dev/mapper/mpatha",
    "name of a map": "mpatha",
    "path of a map": "sdc",
    "disk that no rule matches": "sdd",
    "NVMe namespace": "nvme0n1",
    "NVMe namespace over two controllers": "nvme1n1",
    "hidden path": "nvme1c1n1",
    "interrupt": "irq41",
    ADMIN: "irq40",
    UNKNOWN: "sdzz",
}
"""A name of a target for each kind of name."""

LOOKS = {
    "list": ["list"],
    "diff": ["diff", "--profile", "oltp", "--module-options"],
    "explain": ["explain", "--profile", "oltp"],
    "check": ["check", "--profile", "oltp"],
    "history": ["history"],
    "watch": ["watch", "--interval", "0.1", "--count", "1"],
    "apply --dry-run": ["apply", "--dry-run", "--profile", "oltp"],
    "rollback --dry-run": ["rollback", "--dry-run"],
}
"""Commands that change nothing, to which a target is added."""

CHANGES = {
    "probe": ["probe", "qd1", "--runtime", "0.1"],
    "apply": ["apply", "--profile", "oltp", "--no-probe", "--once", "--module-options"],
    "rollback": ["rollback"],
}
"""Commands that write to the machine, or use it, to which a target is added."""

WITHOUT_TARGET = {
    "status": ["status"],
    "profiles": ["profiles"],
    "profile": ["profiles", "oltp"],
    "workloads": ["probe"],
}
"""Commands with a document and without a target."""

OF_ROOTS_HISTORY = {"history, root's own": ["history"], "status, root's history": ["status"]}
"""Commands to run where the history is root's to read."""

OF_ROOTS_FOLDERS = {
    f"{words[0]}, root's folders": words
    for words in (
        ["list"],
        ["diff", "--profile", "oltp"],
        ["explain", "sda", "--profile", "oltp"],
        ["check"],
        ["history"],
        ["status"],
        ["watch", "--interval", "0.1", "--count", "1"],
    )
}
"""Commands to run where the folders of hbatune's state are root's alone."""

# The nodes and links that udev would make are plain files and links in a /dev of the namespace's
# own; the nodes belong to a group as those of disks do, and hold too little to be probed.
_DEVICES = f"""
mkdir /run/dev
mount --rbind /dev /run/dev || exit 77
mount -t tmpfs -o mode=755 tmpfs /dev || exit 77
for each in null zero full random urandom; do
    touch /dev/$each
    mount --bind /run/dev/$each /dev/$each || exit 77
done
mkdir -p /dev/disk/by-id /dev/mapper /run/bin
for each in sda sda1 sdb sdc sdd nvme0n1 nvme1n1 dm-0; do
    : >/dev/$each
    chown 0:6 /dev/$each
    chmod 660 /dev/$each
done
ln -s ../../sda /dev/disk/by-id/wwn-0x{WWN}
ln -s ../../sda /dev/disk/by-id/scsi-3{WWN}
ln -s ../../sda1 /dev/disk/by-id/wwn-0x{WWN}-part1
ln -s ../dm-0 /dev/mapper/mpatha
printf '#!/bin/sh\\necho fio-3.33\\nexit 1\\n' >/run/bin/fio
chmod 755 /run/bin/fio
printf 'disk:x:6:\\n' >/etc/group
PATH=/run/bin:$PATH
exec "$@"
"""

# What stands in for EINVAL in these trees is root's alone, which the kernel's attributes are not.
_NO_HANDLER = dict.fromkeys(("access_state", "preferred_path"), Odd.NONE)

OWN_DEVICES = ("sh", "-c", _DEVICES, "sh")
"""Words to put before a command that ``namespace.run`` runs."""


@dataclass(frozen=True)
class Cell:
    """One command with one target, and what came of it; ``target`` is the kind of its name."""

    target: str
    command: str
    user: str
    as_json: bool
    code: int
    out: str
    err: str


def everything() -> Described:
    """A machine with every kind of target. No value of it is a capture."""
    sas = Host(
        0,
        "mpt3sas",
        luns=(
            _sas("0:0:0:0", Disk("sda", partitions=("sda1",)), f"naa.{WWN}"),
            _sas("0:0:1:0", Disk("sdb"), "naa.600000000000000a"),
            # Nothing says what it speaks, so that it is left alone.
            Lun("0:0:2:0", Disk("sdd"), wwid="naa.5000c50000000004", device=_NO_HANDLER),
        ),
    )
    second_host = Host(1, "mpt3sas", luns=(_sas("1:0:1:0", Disk("sdc"), "naa.600000000000000a"),))
    disk = _nvme_disk("nvme0n1")
    functions = [
        Function("0000:01:00.0", "mpt3sas", hosts=(sas,), parameters={"max_queue_depth": "-1"}),
        Function("0000:02:00.0", "mpt3sas", hosts=(second_host,)),
        Function(
            "0000:00:1f.2",
            "ahci",
            ("0x8086", "0x2922", "0x1af4", "0x1100"),
            "0x010601",
            hosts=(Host(5, "ahci", can_queue=32, cmd_per_lun=0, under="ata1"),),
        ),
        Function(
            "0000:04:00.0",
            "nvme",
            NVME,
            "0x010802",
            controller=Controller("nvme0", (Namespace(disk),), queue_count=2),
            vectors=(Vector(40, "nvme0q0", affinity="0-3"), Vector(41, "nvme0q1", affinity="0-3")),
        ),
    ]
    for number in (1, 2):
        path = _nvme_disk(f"nvme1c{number}n1")
        controller = Controller(
            f"nvme{number}", (Namespace(path, "uuid.6c5f", hidden=True),), serial="hbat-nvme-2"
        )
        address = f"0000:0{4 + number}:00.0"
        functions.append(Function(address, "nvme", NVME, "0x010802", controller=controller))
    head = Namespace(Disk("nvme1n1", scheduler="none", tags=None), "uuid.6c5f")
    return Described(
        functions=tuple(functions),
        subsystems=(Subsystem("nvme-subsys1", (head,)),),
        mapped=(Mapped(Disk("dm-0", tags=2048), "mpath-3600000000000000a", ("sdb", "sdc")),),
    )


def _sas(address: str, disk: Disk, wwid: str) -> Lun:
    """Return a SAS SSD at an end device of its own."""
    number = address.replace(":", "")
    port = f"port-{number}/end_device-{number}"
    page: Values = {"vpd_pgb1": SSD_PAGE, **_NO_HANDLER}
    return Lun(address, disk, wwid=wwid, port=port, protocols="ssp", device=page)


def _nvme_disk(name: str) -> Disk:
    return Disk(name, scheduler="[none] mq-deadline ", nr_requests=1023, tags=1023, hw_queues=1)


def cells() -> list[Cell]:
    """Run every cell: first what looks, so that both users see one state, then what changes."""
    # What root leaves behind: a journal and a record of rollbacks, and later a history.
    preparing_commands = [
        ["apply", "--profile", "oltp", "--no-probe", "sda", "nvme0n1"],
        ["rollback", "sda"],
    ]
    for code, _, errors in _as("root", preparing_commands, cached=False):
        assert code in (0, 1), errors
    status.save(Paths.status, good_status())
    matrix_cells = _both(LOOKS, KINDS) + _both(WITHOUT_TARGET, {"": ""})
    Paths.history.write_text('{"schema":"hbatune.history/1","records":[]}')
    Paths.history.chmod(0o600)
    matrix_cells += _both(OF_ROOTS_HISTORY, {"": ""})
    # As earlier versions made these folders.
    for folder in (Paths.state, Paths.run):
        folder.chmod(0o700)
    matrix_cells += _both(OF_ROOTS_FOLDERS, {"": ""})
    for folder in (Paths.state, Paths.run):
        folder.chmod(0o711)
    Paths.status.unlink()  # or a rollback would have this process, as the daemon, look again
    return matrix_cells + _both(CHANGES, KINDS)


def _both(commands: dict[str, list[str]], targets: dict[str, str]) -> list[Cell]:
    """Run the commands on the targets as root and as an ordinary user, as text and as JSON."""
    runs = [
        (kind, command, as_json, [*words, *([name] if name else []), *(["--json"] * as_json)])
        for kind, name in targets.items()
        for command, words in commands.items()
        for as_json in (False, True)
    ]
    return [
        Cell(kind, command, user, as_json, *done)
        for user in ("root", "user")
        for (kind, command, as_json, _), done in zip(
            runs,
            _as(user, [run[-1] for run in runs], cached=commands is not CHANGES),
            strict=True,
        )
    ]


def _as(user: str, commands: list[list[str]], *, cached: bool) -> list[tuple[int, str, str]]:
    """Run hbatune in a fork of the user's; return exit codes, and what was printed on both streams.

    With ``cached`` the same attributes are read from the machine only once.
    """
    result = os.memfd_create("result")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if user != "root":
                os.setgroups([])
                os.setresgid(NOBODY, NOBODY, NOBODY)
                os.setresuid(NOBODY, NOBODY, NOBODY)
            if cached:
                _read_once()
            os.write(result, json.dumps([_ran(command) for command in commands]).encode())
            code = 0
        finally:
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert status == 0
    return [(code, out, err) for code, out, err in json.loads(_text(result))]


def _ran(arguments: list[str]) -> tuple[int, str, str]:
    """Run one command in this process."""
    streams = [os.memfd_create(name) for name in ("out", "err")]
    before = [os.dup(number) for number in (1, 2)]
    for number, stream in zip((1, 2), streams, strict=True):
        os.dup2(stream, number)
    try:
        code = main(arguments)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, stream in zip((1, 2), before, strict=True):
            os.dup2(stream, number)
            os.close(stream)
    return code, _text(streams[0]), _text(streams[1])


def _read_once() -> None:
    """Have this process read the attributes of devices once: nothing changes them meanwhile."""
    attributes_by_request: dict[str, dict[str, Attributes]] = {}

    def read(requests: Mapping[str, tuple[str, ...]], **how: Any) -> dict[str, Attributes]:
        key = json.dumps(requests, sort_keys=True)
        if key not in attributes_by_request:
            attributes_by_request[key] = survey.survey_requests(requests, **how)
        return attributes_by_request[key]

    patch("hbatune.facts.assembly.survey_requests", read).start()


def _text(descriptor: int) -> str:
    with os.fdopen(descriptor, "rb") as file:
        file.seek(0)
        return file.read().decode()


if __name__ == "__main__":
    for command in COMMANDS:
        import_module(f"hbatune.cli.commands.{command}")
    print(json.dumps([asdict(cell) for cell in cells()]))
