"""Fibre Channel without hardware: the kernel's own FCoE initiator and target over veth links.

Each path is a pair of network interfaces, joined back to back (VN2VN, without a switch): one end is
an initiator, a SCSI host with a real remote port, the other a target of LIO (tcm_fc). All targets
lead to the same LUNs, which say that they are of whatever array a test names. Each target is a
target port group of its own, with a state of ALUA (SPC-4, 5.15).
"""

import mmap
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

from tests.lab.guest.kit import cat, settle
from tests.lab.guest.values import BLOCK

_TARGETS = Path("/sys/kernel/config/target")
_FCOE = Path("/sys/module/libfcoe/parameters")
_FRAME = 2500  # bytes of an interface, so that a whole FC frame fits
_LUN_BYTES = 32 << 20
OPTIMIZED, NON_OPTIMIZED = "active/optimized", "active/non-optimized"
"""States of a path as the kernel says them (scsi_sysfs.c: sdev_show_access_state)."""
_STATES = {OPTIMIZED: "0", NON_OPTIMIZED: "1"}  # SPC-4: the field of REPORT TARGET PORT GROUPS
_PATIENCE = 120.0
"""Seconds until ports have found each other: VN2VN waits at random, and the guest is emulated."""


class Fabric:
    """Paths, by number, to the same LUNs of an array that says it is ``vendor`` and ``model``."""

    def __init__(self, folder: Path, *, paths: int, luns: int, vendor: str, model: str) -> None:
        self._paths = range(paths)
        self._luns = [self._make_lun(folder, number, vendor, model) for number in range(luns)]
        for path in self._paths:
            self._make_path(path)
        self._wait(lambda: len(self.disks()) == paths * luns, "the LUNs were not found")

    def disks(self) -> list[str]:
        """Return the disks that are there by Fibre Channel."""
        return sorted(
            path.name for path in BLOCK.glob("sd*") if "/rport-" in str((path / "device").resolve())
        )

    def disks_of(self, path: int) -> list[str]:
        """Return the disks behind one path."""
        host = self.host(path)
        return [
            disk for disk in self.disks() if f"/{host}/" in str((BLOCK / disk / "device").resolve())
        ]

    def host(self, path: int) -> str:
        """Return the SCSI host of a path's initiator."""
        wanted = f"0x{_name(_address('i', path)).replace(':', '')}"
        hosts = Path("/sys/class/fc_host").iterdir()
        return next(host.name for host in hosts if cat(host / "port_name") == wanted)

    def lose(self, path: int) -> None:
        """Take the target's link away, and wait until the kernel has given the path up."""
        lost_disks = set(self.disks_of(path))
        for port in Path("/sys/class/fc_remote_ports").iterdir():
            if port.name.startswith(f"rport-{self.host(path).removeprefix('host')}:"):
                (port / "dev_loss_tmo").write_text("1")
        _ip("link", "set", f"t{path}", "down")
        self._wait(lambda: not lost_disks & set(self.disks()), "a lost path kept its disks")

    def give_back(self, path: int) -> list[str]:
        """Connect the target's link again; return the disks that came back."""
        _ip("link", "set", f"t{path}", "up")
        self._wait(lambda: len(self.disks_of(path)) == len(self._luns), "a path did not come back")
        return self.disks_of(path)

    def serve(self, states: Mapping[int, str], *, preferred: int | None = None) -> None:
        """Put the paths into states of ALUA, and wait until the initiator knows of them."""
        for path, state in states.items():
            for store in self._luns:
                group = store / "alua" / _group(path)
                (group / "preferred").write_text(str(int(path == preferred)))
                if cat(group / "alua_access_state") != _STATES[state]:
                    (group / "alua_access_state").write_text(_STATES[state])
        self._wait(lambda: self._known(states), "the states of the paths are not known")

    def _known(self, states: Mapping[int, str]) -> bool:
        """Whether the initiator knows these states: the next command to a LUN tells it.

        It is answered with a unit attention (drivers/target/target_core_alua.c:
        core_alua_queue_state_change_ua).
        """
        disks = {disk: state for path, state in states.items() for disk in self.disks_of(path)}
        for disk in disks:
            file = os.open(f"/dev/{disk}", os.O_RDONLY | os.O_DIRECT)
            with mmap.mmap(-1, 4096) as page:
                os.preadv(file, [page], 0)
            os.close(file)
        return all(
            cat(BLOCK / disk / "device/access_state") == state for disk, state in disks.items()
        )

    def close(self) -> None:
        """Take everything away again."""
        for path in self._paths:
            for end in "it":
                _ip("link", "set", f"{end}{path}", "down")
            for end in "it":
                (_FCOE / "destroy").write_text(f"{end}{path}")
        for path in self._paths:
            _ip("link", "delete", f"i{path}")
            port = _port(path)
            acl = port / "acls" / _name(_address("i", path))
            for number in range(len(self._luns)):
                (acl / f"lun_{number}/mapped").unlink()
                (acl / f"lun_{number}").rmdir()
            acl.rmdir()
            for number in range(len(self._luns)):
                (port / f"lun/lun_{number}/store").unlink()
                (port / f"lun/lun_{number}").rmdir()
            port.rmdir()
            port.parent.rmdir()
        for store in self._luns:
            for path in self._paths:
                (store / "alua" / _group(path)).rmdir()
            store.rmdir()
        settle()

    def _make_lun(self, folder: Path, number: int, vendor: str, model: str) -> Path:
        file = folder / f"lun{number}"
        with file.open("wb") as image:
            image.truncate(_LUN_BYTES)
        store = _TARGETS / f"core/fileio_{number}/lun{number}"
        store.mkdir(parents=True)
        (store / "control").write_text(f"fd_dev_name={file},fd_dev_size={_LUN_BYTES}")
        (store / "wwn/vpd_unit_serial").write_text(f"0000000{number}-1ab0-4000-8000-00000000000f")
        (store / "wwn/vendor_id").write_text(vendor)
        (store / "wwn/product_id").write_text(model)
        (store / "enable").write_text("1")
        for path in self._paths:
            group = store / "alua" / _group(path)
            group.mkdir()
            (group / "tg_pt_gp_id").write_text(str(path + 1))
            (group / "nonop_delay_msecs").write_text("0")  # no acting: the guest is slow enough
        return store

    def _make_path(self, path: int) -> None:
        peer = ("peer", "name", f"t{path}", "address", _address("t", path))
        _ip("link", "add", f"i{path}", "address", _address("i", path), "type", "veth", *peer)
        # Before the ports are there: a target that is made later is not seen until the next login.
        port = _port(path)
        acl = port / "acls" / _name(_address("i", path))
        port.mkdir(parents=True)
        for number, store in enumerate(self._luns):
            lun = port / f"lun/lun_{number}"
            lun.mkdir()
            (lun / "store").symlink_to(store)
            (lun / "alua_tg_pt_gp").write_text(_group(path))
        acl.mkdir()
        for number in range(len(self._luns)):
            (acl / f"lun_{number}").mkdir()
            (acl / f"lun_{number}/mapped").symlink_to(port / f"lun/lun_{number}")
        for end in "ti":
            _ip("link", "set", f"{end}{path}", "mtu", str(_FRAME))
            (_FCOE / "create_vn2vn").write_text(f"{end}{path}")
        # Not before both ports are made: a frame that reaches a port in the making is a fault of
        # the kernel (fcoe_ctlr_vn_recv on 6.12, fip->lp is not set).
        for end in "ti":
            _ip("link", "set", f"{end}{path}", "up")

    @staticmethod
    def _wait(done: Callable[[], bool], problem: str) -> None:
        end = monotonic() + _PATIENCE
        while not done():
            assert monotonic() < end, problem
            settle()


@contextmanager
def fabric(folder: Path, *, paths: int, luns: int, vendor: str, model: str) -> Iterator[Fabric]:
    """Yield a fabric whose LUNs are files in the folder; it goes with the body."""
    # The device handler before the LUNs: it takes those that it finds (scsi_dh.c).
    modules = ("scsi_dh_alua", "fcoe", "tcm_fc", "target_core_file")
    subprocess.run(["modprobe", "--all", *modules], check=True)
    if not _TARGETS.parent.is_mount():
        subprocess.run(["mount", "-t", "configfs", "none", _TARGETS.parent], check=True)
    _TARGETS.joinpath("fc").mkdir(exist_ok=True)
    test_fabric = Fabric(folder, paths=paths, luns=luns, vendor=vendor, model=model)
    try:
        yield test_fabric
    finally:
        test_fabric.close()


def _address(end: str, path: int) -> str:
    """Return the Ethernet address of one end of a path, of which the port's name is made."""
    return f"02:00:00:00:{'01' if end == 'i' else '02'}:{path:02x}"


def _name(address: str) -> str:
    """Return the name of a port on that interface (libfcoe: fcoe_wwn_from_mac, scheme 2)."""
    return f"20:00:{address}"


def _group(path: int) -> str:
    return f"path{path}"


def _port(path: int) -> Path:
    return _TARGETS / "fc" / _name(_address("t", path)) / "tpgt_1"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)
