"""Generate tests/hosts/modules.json: the parameters of Debian's modules, for described machines.

``python -m tools.module_parameters DEB…`` reads kernel packages
(``apt-get download linux-image-6.1.0-56-amd64``) and writes the file. It needs a package of each
series of kernels that the file has, `dpkg-deb` and pyelftools (Debian: python3-pyelftools). No
module is loaded. For each parameter, a module's section ``__param`` contains its name, the mode of
its file in /sys/module and the address of its value (include/linux/moduleparam.h: struct
kernel_param). The data sections contain the initial values.
"""

import io
import json
import lzma
import re
import struct
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

from elftools.elf.elffile import ELFFile

PAGE = Path(__file__).resolve().parents[1] / "tests" / "hosts" / "modules.json"

MODULES = (
    *("mpi3mr", "mpt3sas", "megaraid_sas", "smartpqi", "hpsa", "aacraid", "arcmsr", "ipr"),
    *("mptbase", "mptscsih", "mptsas", "mptspi", "isci", "mvsas", "pm80xx", "aic94xx", "libsas"),
    *("qla2xxx", "lpfc", "iscsi_tcp", "qla1280", "aic7xxx", "sym53c8xx", "ahci", "libata"),
    *("nvme", "nvme_core", "virtio_scsi", "virtio_blk", "vmw_pvscsi", "scsi_debug"),
    *("hv_storvsc", "xen_blkfront", "mvumi"),
)
"""The drivers that the tests describe, and the modules that they depend on."""

# One line for each parameter: the mode of its file, a blank, and its text without options. If only
# the driver's code determines the text, the line has only the mode.

_PARAM = struct.Struct("<QQQHbBxxxxQ")  # struct kernel_param on 64 bits
_ARRAY = struct.Struct("<IIQQQ")  # struct kparam_array
_POINTER = 8
_GET = 2 * _POINTER  # struct kernel_param_ops: flags, set, get, free
_NUMBERS = {
    "byte": "<B",
    "short": "<h",
    "ushort": "<H",
    "int": "<i",
    "uint": "<I",
    "long": "<q",
    "ulong": "<Q",
    "ullong": "<Q",
    "hexint": "<I",
}
"""The storage formats of the kernel's parameter types (kernel/params.c)."""


class Object:
    """A module's object file. Its addresses are relocations against symbols."""

    def __init__(self, data: bytes) -> None:
        self._elf = ELFFile(io.BytesIO(data))
        self._symbols = self._elf.get_section_by_name(".symtab")
        self._pointers: dict[int, dict[int, tuple[str, int, int]]] = {}

    def information(self) -> dict[str, str]:
        """Return the unique entries of ``.modinfo``, such as ``version``."""
        texts = self._elf.get_section_by_name(".modinfo").data().decode(errors="replace")
        return dict(text.split("=", 1) for text in texts.split("\0") if "=" in text)

    def parameters(self) -> Iterator[tuple[str, str]]:
        """Yield each parameter by its name, as a line of the file."""
        number = self._elf.get_section_index("__param")
        if number is None:
            return
        data = self._elf.get_section(number).data()
        for offset in range(0, len(data), _PARAM.size):
            mode = _PARAM.unpack_from(data, offset)[3]
            _, section, place = self._pointer(number, offset)
            operations = self._pointer(number, offset + 2 * _POINTER)
            value = self._pointer(number, offset + _PARAM.size - _POINTER)
            text = self._text(self._kind(*operations), value[1], value[2])
            yield self._string(section, place), f"{mode:04o} {text or ''}".rstrip()

    def _kind(self, operations: str, section: int, place: int) -> str:
        """Return the type of a parameter. For custom operations, it is the type they print."""
        kind = operations.removeprefix("param_ops_").removeprefix("param_")
        if section and kind not in _NUMBERS:
            get = self._pointer(section, place + _GET)[0]
            return get.removeprefix("param_get_")
        return kind

    def _text(self, kind: str, section: int, place: int) -> str | None:
        """Return the text of a value at an offset, in the format of its type."""
        if kind in _NUMBERS:
            [number] = struct.unpack(_NUMBERS[kind], self._bytes(section, place, _NUMBERS[kind]))
            return f"{number:#08x}" if kind == "hexint" else str(number)
        if kind in ("bool", "bool_enable_only", "invbool"):
            is_set = self._bytes(section, place, "<B") != b"\0"
            return "NY"[is_set != (kind == "invbool")]
        if kind == "bint":
            return "NY"[self._bytes(section, place, "<i") != bytes(4)]
        if kind == "charp":
            pointer = self._pointers_of(section).get(place)
            return "(null)" if pointer is None else self._string(pointer[1], pointer[2])
        if kind == "array_ops":
            return self._array(section, place)
        return None

    def _array(self, section: int, place: int) -> str | None:
        length, size, *_ = struct.unpack("<II", self._bytes(section, place, "<II"))
        counted = self._pointers_of(section).get(place + 8)
        operations = self._pointers_of(section).get(place + 16)
        elements = self._pointers_of(section).get(place + 24)
        if operations is None or elements is None:
            return None
        if counted is not None:  # filled only by options, so it is empty without them
            [length] = struct.unpack("<I", self._bytes(counted[1], counted[2], "<I"))
        texts = [
            self._text(self._kind(*operations), elements[1], elements[2] + index * size)
            for index in range(length)
        ]
        return ",".join(text or "" for text in texts)

    def _bytes(self, number: int, place: int, layout: str) -> bytes:
        section, length = self._elf.get_section(number), struct.calcsize(layout)
        if section["sh_type"] == "SHT_NOBITS":  # .bss: all zeros
            return bytes(length)
        data: bytes = section.data()[place : place + length]
        return data

    def _string(self, number: int, place: int) -> str:
        data: bytes = self._elf.get_section(number).data()
        return data[place : data.index(b"\0", place)].decode()

    def _pointer(self, section: int, place: int) -> tuple[str, int, int]:
        return self._pointers_of(section).get(place, ("", 0, 0))

    def _pointers_of(self, number: int) -> dict[int, tuple[str, int, int]]:
        """Return symbol, section and offset of each address in a section."""
        if number not in self._pointers:
            name = f".rela{self._elf.get_section(number).name}"
            table = self._elf.get_section_by_name(name)
            self._pointers[number] = dict(self._relocated(table)) if table else {}
        return self._pointers[number]

    def _relocated(self, table: object) -> Iterator[tuple[int, tuple[str, int, int]]]:
        for relocation in table.iter_relocations():  # type: ignore[attr-defined]
            symbol = self._symbols.get_symbol(relocation["r_info_sym"])
            section = symbol["st_shndx"]
            number = section if isinstance(section, int) else 0  # of another module
            yield (
                relocation["r_offset"],
                (symbol.name, number, symbol["st_value"] + relocation["r_addend"]),
            )


def described(package: Path) -> tuple[str, dict[str, object]]:
    """Return a package's name and version, and the data of its modules, by name."""
    fields = ("Package", "Version")
    values = [_dpkg("--field", str(package), field).decode().strip() for field in fields]
    modules: dict[str, object] = {}
    with tarfile.open(fileobj=io.BytesIO(_dpkg("--fsys-tarfile", str(package)))) as archive:
        for member in archive:
            name, _, ending = Path(member.name).name.partition(".ko")
            is_module = member.isfile() and ending in ("", ".xz")
            file = archive.extractfile(member) if is_module else None
            name = name.replace("-", "_")
            if "/modules/" not in member.name or name not in MODULES or file is None:
                continue
            data = file.read()
            module = Object(lzma.decompress(data) if ending == ".xz" else data)
            modules[name] = {
                "version": module.information().get("version"),
                "parameters": dict(sorted(module.parameters())),
            }
    return " ".join(values), dict(sorted(modules.items()))


def find_package_series(package: str) -> str:
    """Return the series of a kernel, such as ``6.12``, in the name of its package."""
    [series] = re.findall(r"^\D+-(\d+\.\d+)", package)
    return str(series)


def _dpkg(*arguments: str) -> bytes:
    return subprocess.run(["dpkg-deb", *arguments], check=True, capture_output=True).stdout


def main() -> None:
    """Write the file from the named packages."""
    packages = dict(described(Path(name)) for name in sys.argv[1:])
    described_series = {find_package_series(package) for package in packages}
    for package in json.loads(PAGE.read_text(encoding="utf-8")):
        series = find_package_series(package)
        if series not in described_series:
            sys.exit(f"{PAGE} has {package}: name a package of Linux {series}, too")
    PAGE.write_text(json.dumps(packages, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
