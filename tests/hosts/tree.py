"""Sysfs trees out of descriptions of machines, which udev and hbatune then read for real.

The layout (which directory, which link) follows the kernel; values are those of the description.
A value is a text, ``EIO`` or ``EINVAL`` (reading fails), ``HANGS`` (opening never returns) or
``NONE`` (there is no such file).
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path


class Odd(Enum):
    """What an attribute may be instead of a text."""

    EIO = "reading fails with EIO"
    EINVAL = "reading fails with EINVAL"
    HANGS = "opening it for reading never returns"
    NONE = "there is no such file"


@dataclass(frozen=True)
class Moded:
    """A text whose file has this mode."""

    text: str
    mode: int


Value = str | bytes | Odd | Moded
Values = Mapping[str, Value]

# What mq-deadline has on 6.1 (block/mq-deadline.c).
MQ_DEADLINE: Values = {
    "async_depth": "192",
    "fifo_batch": "16",
    "front_merges": "1",
    "prio_aging_expire": "10000",
    "read_expire": "500",
    "write_expire": "5000",
    "writes_starved": "2",
}

# What only its driver can change, or nobody, has no write bit.
_READ_ONLY = {
    "max_hw_sectors_kb",
    "logical_block_size",
    "zoned",
    "nr_tags",
    "size",
    "dev",
    "uevent",
}


@dataclass(frozen=True)
class Disk:
    """A block device with its queue. ``tags`` None: bio-based, without an mq folder.

    ``served`` are, by hardware queue, the CPUs that submit to it.
    """

    name: str
    sectors: int = 2097152
    rotational: bool = False
    scheduler: str = "[mq-deadline] kyber none"
    nr_requests: int = 256
    tags: int | None = 975
    hw_queues: int = 1
    served: tuple[str, ...] = ()
    queue: Values = field(default_factory=dict)
    block: Values = field(default_factory=dict)
    has_queue: bool = True
    partitions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Lun:
    """A SCSI device and its disk.

    ``port`` is the path of transport devices between host and target; ``protocols`` is what the
    SAS transport class says of the last of them; ``parallel`` puts the target on such a bus.
    ``said`` is what else transport classes say, by paths below the last of those devices.
    """

    address: str
    disk: Disk
    vendor: str = "SEAGATE"
    model: str = "ST1200MM0088"
    revision: str = "N003"
    wwid: str = "naa.5000c500a1b2c3d4"
    queue_depth: str = "64"
    depth_writable: bool = True
    state: str = "running"
    port: str = ""
    protocols: str | None = None
    parallel: bool = False
    device: Values = field(default_factory=dict)
    said: Values = field(default_factory=dict)


@dataclass(frozen=True)
class Host:
    """A SCSI host. ``under`` is the path of devices between its parent and it (``ata1``).

    ``said`` is what transport classes say, by paths below the last of those. ``phys`` are the
    counters of its SAS phys.
    """

    number: int
    proc_name: str
    can_queue: int = 975
    cmd_per_lun: int = 256
    hw_queues: int = 1
    under: str = ""
    luns: tuple[Lun, ...] = ()
    attributes: Values = field(default_factory=dict)
    driver: str | None = None
    said: Values = field(default_factory=dict)
    phys: tuple[Values, ...] = ()


@dataclass(frozen=True)
class Namespace:
    """An NVMe namespace or a hidden path to one."""

    disk: Disk
    wwid: str = "eui.0025385b71b00c6f"
    hidden: bool = False


@dataclass(frozen=True)
class Controller:
    """An NVMe controller."""

    name: str
    namespaces: tuple[Namespace, ...] = ()
    model: str = "QEMU NVMe Ctrl"
    serial: str = "hbat-nvme-1"
    firmware: str = "8.0.2"
    state: str = "live"
    queue_count: int = 3
    transport: str = "pcie"
    attributes: Values = field(default_factory=dict)


@dataclass(frozen=True)
class Link:
    """What the four link files of a PCI Express function say."""

    speed: str = "8.0 GT/s PCIe"
    width: str = "8"
    max_speed: str = "16.0 GT/s PCIe"
    max_width: str = "8"


@dataclass(frozen=True)
class Port:
    """A PCI Express port above a function, by its address, with what its files say."""

    address: str
    attributes: Values = field(default_factory=dict)


@dataclass(frozen=True)
class Vector:
    """An interrupt vector; one that is ``locked`` nobody may move, and its file says so.

    ``hint`` is the mask that its driver suggests.
    """

    number: int
    name: str
    locked: bool = False
    affinity: str = "0"
    hint: str = "0"


@dataclass(frozen=True)
class Cpus:
    """The CPUs of a machine, of which those a multiple of ``cores`` apart share a core.

    ``default`` is the mask in /proc/irq/default_smp_affinity, if there is this file. ``cgroups``
    are the files below /sys/fs/cgroup.
    """

    online: int = 4
    cores: int = 4
    isolated: str = ""
    nohz_full: str = " (null)"  # what the kernel prints where there are none
    command_line: str = "root=/dev/sda1 ro quiet"
    default: str = ""
    cgroups: Values = field(default_factory=dict)


@dataclass(frozen=True)
class Function:
    """A PCI function bound to a driver, with what hangs on it.

    ``vectors`` are MSI-X; a function without any has one INTx line, ``irq``, that ``handler``
    serves. ``parameters`` are those of the driver's module. ``ports`` are above it, the root port
    first.
    """

    address: str
    driver: str
    ids: tuple[str, str, str, str] = ("0x1000", "0x005b", "0x1000", "0x9360")
    class_code: str = "0x010400"
    numa_node: str = "-1"
    link: Link | None = None
    version: str | None = None
    hosts: tuple[Host, ...] = ()
    controller: Controller | None = None
    virtio: int | None = None
    virtio_driver: str = "virtio_scsi"
    disk: Disk | None = None
    bridge: str = ""
    local_cpus: str = "0-3"
    ports: tuple[Port, ...] = ()
    attributes: Values = field(default_factory=dict)
    vectors: tuple[Vector, ...] = ()
    irq: int = 0
    handler: str = ""
    parameters: Values = field(default_factory=dict)


@dataclass(frozen=True)
class Subsystem:
    """An NVMe subsystem with its visible heads."""

    name: str
    heads: tuple[Namespace, ...]
    model: str = "QEMU NVMe Ctrl"
    serial: str = "hbat-nvme-2"
    iopolicy: str = "numa"


@dataclass(frozen=True)
class Mapped:
    """A device over whole disks or partitions: of device-mapper, or without ``uuid`` of md."""

    disk: Disk
    uuid: str
    slaves: tuple[str, ...]
    suspended: bool = False
    name: str = ""


@dataclass(frozen=True)
class Described:
    """A machine. ``bare`` are hosts below the path they name, without a PCI function.

    ``modules`` are the parameters of modules that serve no PCI function, ``log`` the messages in
    the kernel's log. ``fabrics`` are NVMe controllers over fabrics, ``bound`` the drivers of
    devices ``elsewhere``, by path, as are their ``device_files``. ``platform`` are NVMe controllers
    on the path that they name. ``pools`` are the members of each btrfs with several.
    A mount of something other than a disk is a dataset of ZFS.
    """

    functions: tuple[Function, ...] = ()
    bare: tuple[tuple[str, Host], ...] = ()
    subsystems: tuple[Subsystem, ...] = ()
    mapped: tuple[Mapped, ...] = ()
    virtual: tuple[Disk, ...] = ()
    elsewhere: tuple[tuple[str, Disk], ...] = ()
    cpus: Cpus = Cpus()
    mounts: tuple[tuple[str, str], ...] = ()
    pools: tuple[tuple[str, ...], ...] = ()
    swaps: tuple[str, ...] = ()
    modules: Mapping[str, Values] = field(default_factory=dict)
    log: tuple[str, ...] = ()
    fabrics: tuple[Controller, ...] = ()
    bound: Mapping[str, str] = field(default_factory=dict)
    device_files: Mapping[str, Values] = field(default_factory=dict)
    platform: tuple[tuple[str, Controller], ...] = ()


def build(machine: Described, root: Path, *, linked: bool = False) -> None:
    """Write the machine's ``sys`` and ``proc`` below ``root``.

    With ``linked``, equal files are one file with many names: for trees that are only read, and
    too large for memory otherwise.
    """
    _Builder(root, linked=linked).machine(machine)


class _Builder:
    """Writes one tree; keeps the disks' directories and device numbers for links to them."""

    def __init__(self, root: Path, *, linked: bool) -> None:
        self._equal: dict[tuple[bytes, int], str] | None = {} if linked else None
        self._sys = str(root / "sys")
        self._proc = root / "proc"
        self._disks: dict[str, str] = {}
        self._numbers: dict[str, str] = {}
        self._made: set[str] = set()
        for folder in ("class/block", "bus/pci/devices", "dev/block", "devices", "fs"):
            self._folder(folder)

    def machine(self, machine: Described) -> None:
        for function in machine.functions:
            self._function(function)
        for path, host in machine.bare:
            self._host(f"devices/{path}", host)
        for name, parameters in machine.modules.items():
            self._module(name, parameters)
        for controller in machine.fabrics:
            path = f"devices/virtual/nvme-fabrics/ctl/{controller.name}"
            self._controller(path, controller)
        for path, controller in machine.platform:
            self._controller(f"devices/{path}/nvme/{controller.name}", controller)
        for path, driver in machine.bound.items():
            self._driver(f"devices/{path}", "pseudo", driver)
        for subsystem in machine.subsystems:
            self._subsystem(subsystem)
        for disk in machine.virtual:
            self._disk(f"devices/virtual/block/{disk.name}", disk)
        for path, disk in machine.elsewhere:
            device = f"devices/{path}"
            self._files(device, machine.device_files.get(path, {}), writable=False)
            self._disk(f"{device}/block/{disk.name}", disk, parent=device)
        for mapped in machine.mapped:
            self._mapped(mapped)
        self._cpus(machine.cpus)
        self._mounts(machine)
        self._log(machine.log)

    def _log(self, messages: tuple[str, ...]) -> None:
        """Write the log as /dev/kmsg gives it, as errors of the kernel's own."""
        file = self._proc.parent / "dev" / "kmsg"
        file.parent.mkdir(exist_ok=True)
        texts = ("Linux version 6.12", *messages)
        lines = (f"3,{n},{n * 1000},-;{text}\n" for n, text in enumerate(texts))
        file.write_text("".join(lines))
        file.chmod(0o600)  # as with kernel.dmesg_restrict, which Debian switches on

    def _cpus(self, cpus: Cpus) -> None:
        (self._proc / "irq").mkdir(parents=True, exist_ok=True)
        folder = "devices/system/cpu"
        online = f"0-{cpus.online - 1}"
        values = {"online": online, "isolated": cpus.isolated, "nohz_full": cpus.nohz_full}
        self._files(folder, values, writable=False)
        self._files("fs/cgroup", cpus.cgroups)
        (self._proc / "cmdline").write_text(f"{cpus.command_line}\n")
        if cpus.default:
            (self._proc / "irq" / "default_smp_affinity").write_text(f"{cpus.default}\n")
        for cpu in range(cpus.online):
            core = range(cpu % cpus.cores, cpus.online, cpus.cores)
            siblings = {"thread_siblings_list": ",".join(map(str, core))}
            self._files(f"{folder}/cpu{cpu}/topology", siblings, writable=False)

    def _function(self, function: Function) -> None:
        domain = function.address[:7]
        path = f"devices/pci{domain}/{function.bridge}".rstrip("/")
        for port in function.ports:
            path = f"{path}/{port.address}"
            self._files(path, port.attributes, writable=False)
        path = f"{path}/{function.address}"
        vendor, device, subvendor, subdevice = function.ids
        values: dict[str, Value] = {
            "class": function.class_code,
            "vendor": vendor,
            "device": device,
            "subsystem_vendor": subvendor,
            "subsystem_device": subdevice,
            "numa_node": function.numa_node,
            "local_cpulist": function.local_cpus,
            "irq": str(function.irq),
            "uevent": f"DRIVER={function.driver}\nPCI_SLOT_NAME={function.address}",
            **function.attributes,
        }
        if function.link:
            values |= {
                "current_link_speed": function.link.speed,
                "current_link_width": function.link.width,
                "max_link_speed": function.link.max_speed,
                "max_link_width": function.link.max_width,
            }
        self._files(path, values, writable=False)
        self._link(f"{path}/subsystem", "bus/pci")
        self._link(f"bus/pci/devices/{function.address}", path)
        self._driver(path, "pci", function.driver)
        module = function.virtio_driver if function.virtio is not None else function.driver
        if function.version:
            self._files(f"module/{function.driver}", {"version": function.version})
        if function.parameters:
            self._module(module, function.parameters)
            bus = "pci" if function.virtio is None else "virtio"
            self._link(f"bus/{bus}/drivers/{module}/module", f"module/{module}")
        for vector in function.vectors:
            self._vector(path, vector)
        if function.handler:
            (self._proc / "irq" / str(function.irq) / function.handler).mkdir(parents=True)
        if function.virtio is not None:
            path = f"{path}/virtio{function.virtio}"
            self._files(path, {"uevent": f"DRIVER={function.virtio_driver}"})
            self._link(f"{path}/subsystem", "bus/virtio")
            self._driver(path, "virtio", function.virtio_driver)
        for host in function.hosts:
            self._host(path, host)
        if function.controller:
            self._controller(f"{path}/nvme/{function.controller.name}", function.controller)
        if function.disk:
            self._disk(f"{path}/block/{function.disk.name}", function.disk, parent=path)

    def _module(self, name: str, parameters: Values) -> None:
        """Write a loaded module, which has a folder even without parameters that can be seen."""
        self._folder(f"module/{name}")
        self._files(f"module/{name}/parameters", parameters)

    def _vector(self, function: str, vector: Vector) -> None:
        """Write one vector; 6.12 and later take the write bit away from one that is locked."""
        self._files(f"{function}/msi_irqs", {str(vector.number): "msix"}, writable=False)
        folder = self._proc / "irq" / str(vector.number)
        (folder / vector.name).mkdir(parents=True)  # "." for one without a handler
        file = folder / "smp_affinity_list"
        file.write_text(f"{vector.affinity}\n")
        (folder / "effective_affinity_list").write_text(f"{vector.affinity[0]}\n")
        (folder / "node").write_text("0\n")
        (folder / "affinity_hint").write_text(f"{vector.hint}\n")
        file.chmod(0o444 if vector.locked else 0o644)

    def _host(self, parent: str, host: Host) -> None:
        above = f"{parent}/{host.under}".rstrip("/")
        name = f"host{host.number}"
        path = f"{above}/{name}"
        if host.driver:
            self._driver(above, "pseudo", host.driver)
            self._files(above, {"uevent": f"DRIVER={host.driver}"})
        self._files(above, host.said, writable=False)
        self._files(path, {"uevent": "DEVTYPE=scsi_host"})
        self._link(f"{path}/subsystem", "bus/scsi")
        values: dict[str, Value] = {
            "uevent": "",
            "proc_name": host.proc_name,
            "can_queue": str(host.can_queue),
            "cmd_per_lun": str(host.cmd_per_lun),
            "nr_hw_queues": str(host.hw_queues),
            **host.attributes,
        }
        self._of_class(f"{path}/scsi_host/{name}", "scsi_host", values)
        for number, counters in enumerate(host.phys):
            phy = f"phy-{host.number}:{number}"
            self._of_class(f"{path}/{phy}/sas_phy/{phy}", "sas_phy", counters)
        for lun in host.luns:
            self._lun(path, lun)

    def _lun(self, host: str, lun: Lun) -> None:
        target = f"target{lun.address.rpartition(':')[0]}"
        above = f"{host}/{lun.port}".rstrip("/")
        path = f"{above}/{target}/{lun.address}"
        values: dict[str, Value] = {
            "type": "0",
            "vendor": lun.vendor.ljust(8),
            "model": lun.model.ljust(16),
            "rev": lun.revision.ljust(4),
            "wwid": lun.wwid,
            "state": lun.state,
            "uevent": "DEVTYPE=scsi_device\nDRIVER=sd",
            # There with every LUN; EINVAL where no device handler serves it (scsi_sysfs.c).
            "access_state": Odd.EINVAL,
            "preferred_path": Odd.EINVAL,
            **lun.device,
        }
        self._files(path, values, writable=False)
        self._files(path, {"queue_depth": lun.queue_depth}, writable=lun.depth_writable)
        self._files(path, {"timeout": "30"})
        self._link(f"{path}/subsystem", "bus/scsi")
        self._link(f"bus/scsi/devices/{lun.address}", path)
        self._files(f"{above}/{target}", {"uevent": "DEVTYPE=scsi_target"})
        if lun.protocols is not None:
            self._files(above, {"uevent": ""})
            end_device = above.rpartition("/")[2]
            port = {"target_port_protocols": lun.protocols}
            self._of_class(f"{above}/sas_device/{end_device}", "sas_device", port)
        self._files(above, lun.said, writable=False)
        if lun.parallel:
            self._of_class(f"{above}/{target}/spi_transport/{target}", "spi_transport", {})
        self._disk(f"{path}/block/{lun.disk.name}", lun.disk, parent=path)

    def _controller(self, path: str, controller: Controller) -> None:
        values = {
            "uevent": f"MAJOR=240\nMINOR=0\nDEVNAME={controller.name}",
            "model": controller.model.ljust(40),
            "serial": controller.serial.ljust(20),
            "firmware_rev": controller.firmware.ljust(8),
            "state": controller.state,
            "queue_count": str(controller.queue_count),
            "transport": controller.transport,
        }
        self._of_class(path, "nvme", values)
        self._files(path, controller.attributes)
        for namespace in controller.namespaces:
            self._namespace(f"{path}/{namespace.disk.name}", namespace, path)

    def _subsystem(self, subsystem: Subsystem) -> None:
        path = f"devices/virtual/nvme-subsystem/{subsystem.name}"
        values = {"model": subsystem.model, "serial": subsystem.serial, "uevent": ""}
        self._of_class(path, "nvme-subsystem", values)
        self._files(path, {"iopolicy": subsystem.iopolicy})
        for head in subsystem.heads:
            self._namespace(f"{path}/{head.disk.name}", head, path)

    def _namespace(self, path: str, namespace: Namespace, parent: str) -> None:
        self._disk(path, namespace.disk, parent=parent, hidden=namespace.hidden)
        values = {"wwid": namespace.wwid, "nsid": "1"}
        if namespace.hidden:
            values["ana_state"] = "optimized"
        self._files(path, values, writable=False)

    def _mapped(self, mapped: Mapped) -> None:
        path = f"devices/virtual/block/{mapped.disk.name}"
        self._disk(path, mapped.disk)
        if mapped.uuid:
            suspended = str(int(mapped.suspended))
            values = {"uuid": mapped.uuid, "name": mapped.name, "suspended": suspended}
            self._files(f"{path}/dm", values)
        for slave in mapped.slaves:
            self._link(f"{path}/slaves/{slave}", self._disks[slave])
            self._link(f"{self._disks[slave]}/holders/{mapped.disk.name}", path)

    def _disk(
        self, path: str, disk: Disk, *, parent: str | None = None, hidden: bool = False
    ) -> None:
        number = self._number(disk.name)
        named = "" if hidden else f"MAJOR={number[0]}\nMINOR={number[1]}\n"
        values: dict[str, Value] = {
            "uevent": f"{named}DEVNAME={disk.name}\nDEVTYPE=disk",
            "size": str(disk.sectors),
            "hidden": str(int(hidden)),
            "removable": "0",
            "dev": f"{number[0]}:{number[1]}",
            "diskseq": str(len(self._disks) + 1),
            **disk.block,
        }
        self._files(path, values, writable=False)
        self._folder(f"{path}/holders")
        self._folder(f"{path}/slaves")
        if disk.has_queue:
            self._queue(path, disk)
        self._register(path, disk.name, number)
        if parent:
            self._link(f"{path}/device", parent)
        for index, partition in enumerate(disk.partitions, start=1):
            self._partition(f"{path}/{partition}", partition, index)

    def _queue(self, path: str, disk: Disk) -> None:
        values: dict[str, Value] = {
            "scheduler": disk.scheduler,
            "nr_requests": str(disk.nr_requests),
            "rotational": str(int(disk.rotational)),
            "rq_affinity": "1",
            "nomerges": "0",
            "add_random": "0",
            "read_ahead_kb": "128",
            "max_sectors_kb": "1280",
            "max_hw_sectors_kb": "32767",
            "logical_block_size": "512",
            "wbt_lat_usec": "2000",
            "iostats": "1",
            "zoned": "none",
            "write_cache": "write through",
            # Of drivers that time requests out (block/blk-sysfs.c: queue_attr_visible).
            **({"io_timeout": "30000"} if disk.tags else {}),
            **disk.queue,
        }
        self._files(f"{path}/queue", values)
        if "[mq-deadline]" in disk.scheduler:
            self._files(f"{path}/queue/iosched", MQ_DEADLINE)
        for number in range(disk.hw_queues if disk.tags else 0):
            self._files(f"{path}/mq/{number}", {"nr_tags": str(disk.tags)})
        for number, cpus in enumerate(disk.served):
            self._files(f"{path}/mq/{number}", {"cpu_list": cpus})

    def _partition(self, path: str, name: str, index: int) -> None:
        number = self._number(name)
        uevent = f"MAJOR={number[0]}\nMINOR={number[1]}\nDEVNAME={name}\nDEVTYPE=partition"
        values = {"partition": str(index), "size": "2048", "dev": f"{number[0]}:{number[1]}"}
        self._files(path, {"uevent": uevent, **values})
        self._folder(f"{path}/holders")
        self._register(path, name, number)

    def _register(self, path: str, name: str, number: tuple[int, int]) -> None:
        self._disks[name] = path
        self._numbers[name] = f"{number[0]}:{number[1]}"
        self._link(f"{path}/subsystem", "class/block")
        self._link(f"class/block/{name}", path)
        self._link(f"dev/block/{self._numbers[name]}", path)

    def _number(self, name: str) -> tuple[int, int]:
        return 8, len(self._numbers)

    def _of_class(self, path: str, name: str, values: Values) -> None:
        self._files(path, {"uevent": "", **values}, writable=False)
        self._link(f"{path}/subsystem", f"class/{name}")
        self._folder(f"class/{name}")
        self._link(f"class/{name}/{path.rpartition('/')[2]}", path)

    def _driver(self, path: str, bus: str, driver: str) -> None:
        self._folder(f"bus/{bus}/drivers/{driver}")
        self._folder(path)
        self._link(f"{path}/driver", f"bus/{bus}/drivers/{driver}")

    def _mounts(self, machine: Described) -> None:
        self._proc.mkdir(parents=True, exist_ok=True)
        lines = []
        pooled = {disk for pool in machine.pools for disk in pool}
        for index, (disk, point) in enumerate(machine.mounts, start=20):
            # A btrfs has an anonymous device number (fs/btrfs/disk-io.c: get_anon_bdev).
            number, kind = (f"0:{index}", "btrfs") if disk in pooled else (None, "ext4")
            source = f"{kind} /dev/{disk}"
            if disk not in self._numbers:
                number, source = f"0:{index}", f"zfs {disk}"
            lines.append(f"{index} 1 {number or self._numbers[disk]} / {point} rw - {source} rw\n")
        for position, pool in enumerate(machine.pools):
            path = f"fs/btrfs/4f6c{position:04}-8d1b-4e7a-9c3e-2b5a7d9e1f00"
            self._files(path, {"label": f"media{position}"})
            for disk in pool:
                self._link(f"{path}/devices/{disk}", self._disks[disk])
        (self._proc / "mountinfo").write_text("".join(lines))
        swaps = [f"/dev/{disk} partition 1 0 -2\n" for disk in machine.swaps]
        (self._proc / "swaps").write_text("Filename Type Size Used Priority\n" + "".join(swaps))

    def _folder(self, path: str) -> str:
        full = f"{self._sys}/{path}"
        if full not in self._made:
            os.makedirs(full, exist_ok=True)
            self._made.add(full)
        return full

    def _files(self, path: str, values: Values, *, writable: bool = True) -> None:
        """Write attribute files; a value ends in a newline, as the kernel prints it."""
        for name, value in values.items():
            folder, _, leaf = f"{path}/{name}".rpartition("/")
            full = f"{self._folder(folder)}/{leaf}"
            match value:
                case Odd.NONE:
                    pass
                case Odd.HANGS:
                    os.mkfifo(full)
                case Odd.EIO:
                    # Address zero is never mapped (fs/proc/base.c: mem_rw).
                    os.symlink("/proc/self/mem", full)
                case Odd.EINVAL:
                    # A file that can only be written (fs/proc/task_mmu.c: clear_refs_write).
                    os.symlink("/proc/self/clear_refs", full)
                case Moded():
                    self._file(full, f"{value.text}\n".encode(), value.mode)
                case _:
                    data = value if isinstance(value, bytes) else f"{value}\n".encode()
                    mode = 0o644 if writable and leaf not in _READ_ONLY else 0o444
                    self._file(full, data, mode)

    def _file(self, path: str, data: bytes, mode: int) -> None:
        if self._equal is not None:
            equal = self._equal.setdefault((data, mode), path)
            if equal != path:
                with suppress(FileExistsError):
                    os.link(equal, path)
                return
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        os.write(file, data)
        os.close(file)

    def _link(self, path: str, target: str) -> None:
        """Link to a path of the tree, relatively as sysfs does."""
        folder, _, leaf = path.rpartition("/")
        full = self._folder(folder)
        up = "../" * (folder.count("/") + 1)
        os.symlink(up + target, f"{full}/{leaf}")
