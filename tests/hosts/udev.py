"""A small udev: evaluates compiled rules against a built tree, as udev(7) says it would.

It knows just what the rules of hbatune use. ``real`` is udev itself, where it is installed.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from pathlib import Path

from hbatune.act.paths import Paths
from hbatune.boot.compile import CompiledRules, format_rules, format_writer
from hbatune.boot.lines import RuleLine, RulePart
from hbatune.facts.model import SAVED_PREFIX
from hbatune.settings.setting import UdevWriter, parse_selected
from tests.hosts.namespace import run

_PARENTS = {"KERNELS", "SUBSYSTEMS", "DRIVERS", "ATTRS"}
_ENV = re.compile(r"\$env\{([.\w]+)\}")
_PART = re.compile(r'([A-Z]+)(?:\{([^}]+)\})?(==|!=|=)"([^"]*)"(?:, |$)')
_KEPT = re.compile(r"[^A-Za-z0-9#+\-.:=@_/ $%?,]")


@dataclass
class Event:
    """One event of a disk: what the rules left in its environment, what they wrote, and started."""

    root: Path
    disk: str
    environment: dict[str, str]
    database: dict[str, str] = field(default_factory=dict)
    written: dict[str, str] = field(default_factory=dict)
    programs: int = 0
    _read: dict[str, str | None] = field(default_factory=dict)
    _id: str = ""

    def run(self, compiled: CompiledRules) -> "Event":
        """Go through the rules."""
        lines = _parse_compiled(compiled)
        at = 0
        while at < len(lines):
            target = self._line(lines[at])
            at = at + 1 if target is None else _labelled(lines, target)
        return self

    @property
    def saved_values(self) -> dict[str, str]:
        """The old values in udev's database after the event."""
        return {k: text for k, text in self.recorded.items() if k.startswith(SAVED_PREFIX)}

    @property
    def recorded(self) -> dict[str, str]:
        """What udev's database has of the rules afterwards; ``remove`` drops all of it."""
        if self.environment["ACTION"] == "remove":
            return {}
        variables = self.environment.items()
        return {k: text for k, text in variables if k.startswith("HBATUNE_") and text}

    @cached_property
    def device(self) -> Path:
        """The disk's directory."""
        return (self.root / "sys/class/block" / self.disk).resolve()

    def _line(self, line: RuleLine) -> str | None:
        matches = [part for part in line if part.op != "=" and part.key not in _PARENTS]
        parents = [part for part in line if part.key in _PARENTS]
        later = {"TEST": 1, "IMPORT": 2, "PROGRAM": 3}
        matches.sort(key=lambda part: later.get(part.key, 0))
        early = [part for part in matches if part.key not in later]
        if not all(map(self._matches, early)) or (parents and not self._climbs(parents)):
            return None
        if not all(self._matches(part) for part in matches if part.key in later):
            return None
        target = None
        for part in line:
            if part.op == "=" and part.key == "GOTO":
                target = part.value
            elif part.op == "=" and part.key == "ENV":
                assert part.name is not None
                self.environment[part.name] = self._expanded(part.value)
            elif part.op == "=" and part.key == "ATTR":
                assert part.name is not None
                self.written[part.name] = part.value  # udev still has the text that it has read
        return target

    def _matches(self, part: RulePart) -> bool:
        value: str | None
        match part.key:
            case "ENV":
                value = self.environment.get(part.name or "", "")
            case "ATTR":
                value = self._attribute(part.name or "")
            case "TEST":
                exists = (self.device / self._path(part.value)).exists()
                return exists == (part.op == "==")
            case "IMPORT":
                if part.value in self.database:
                    self.environment[part.value] = self.database[part.value]
                return part.value in self.database
            case "PROGRAM":
                self._write(part.value)
                return True
            case "DEVPATH":
                value = "/" + str(self.device.relative_to(self.root / "sys"))
            case "KERNEL":
                value = self.disk
            case "SYMLINK":
                links = self.environment.get("SYMLINK", "").split()
                return any(_fits(part, link) for link in links)
            case _:
                value = {"SUBSYSTEM": "block", "ACTION": self.environment["ACTION"]}[part.key]
        return value is not None and _fits(part, value)

    def _write(self, command: str) -> None:
        """Note what the program of the rules would write; nothing resets another value here."""
        self.programs += 1
        shell, program, device, *wishes = _ENV.sub(self._property, command).split()
        assert (shell, program, device) == ("/bin/sh", str(Paths.udev_writer), "$sys$devpath")
        scheduler = "none"
        for wish in wishes:
            how, path, value, most_in = wish.split(":")
            text = self.written.get(path, _content(self.device / path))
            if how == UdevWriter.BRACKETED and text and "[" in text:
                scheduler = parse_selected(text)
                if value and value != scheduler:
                    self.written[path] = scheduler = value
            if how == UdevWriter.BRACKETED or not (value and text) or text == value:
                continue
            most = _content(self.device / most_in) if most_in else value
            raised = how != UdevWriter.LOWER or int(text) < int(value)
            queued = how != UdevWriter.SCHEDULED or scheduler != "none"
            has_stack = path == "queue/max_sectors_kb" and any((self.device / "holders").glob("*"))
            if has_stack and int(text) > int(value):
                continue
            if raised and queued and most and int(value) <= int(most):
                self.written[path] = value

    def _climbs(self, parts: Sequence[RulePart]) -> bool:
        for directory in self._ancestors():
            if all(_fits(part, _of(directory, part)) for part in parts):
                self._id = directory.name
                return True
        return False

    def _ancestors(self) -> Iterator[Path]:
        top = self.root / "sys/devices"
        directory = self.device
        while directory != top:
            if (directory / "uevent").exists():
                yield directory
            directory = directory.parent

    def _attribute(self, path: str) -> str | None:
        _, is_alias, real_path = path.partition("/$kernel/")
        if is_alias:
            return self.written.get(real_path, _content(self.device / real_path))
        if path not in self._read:
            file = self.device / path
            self._read[path] = _content(file)
        return self._read[path]

    def _path(self, text: str) -> Path:
        path = _ENV.sub(self._property, text.replace("$id", self._id))
        return self.root / path[1:] if path.startswith("/") else Path(path)

    def _property(self, match: re.Match[str]) -> str:
        return self.environment.get(match[1], "")

    def _expanded(self, text: str) -> str:
        if text == "$result":  # everything was set
            return ""
        text = _ENV.sub(self._property, text)
        match = re.fullmatch(r"\$attr\{(.+)\}", text)
        if match is None:
            assert "$" not in text
            assert "%" not in text
            return text
        return _KEPT.sub("_", (self._attribute(match[1]) or "").rstrip())


_parsed: list[tuple[CompiledRules, dict[str, object], tuple[RuleLine, ...]]] = []
"""The latest compiled rules, hbatune's paths, and their lines: most are for many disks' events."""


def _parse_compiled(compiled: CompiledRules) -> tuple[RuleLine, ...]:
    paths = dict(vars(Paths))  # each test has its own
    for earlier, earlier_paths, lines in _parsed:
        if earlier is compiled and earlier_paths == paths:
            return lines
    lines = parse_rules(format_rules(compiled))
    _parsed[:] = [*_parsed[-7:], (compiled, paths, lines)]
    return lines


@lru_cache(maxsize=8)
def parse_rules(file: str) -> tuple[RuleLine, ...]:
    """Return the lines of the text of a rules file, each with its parts."""
    lines = []
    for text in file.splitlines():
        if text and not text.startswith("#"):
            parts = _PART.findall(text)
            assert "".join(match[0] for match in _PART.finditer(text)) == text
            line = (RulePart(key, op, value, name or None) for key, name, op, value in parts)
            lines.append(tuple(line))
    return tuple(lines)


def _labelled(lines: Sequence[RuleLine], target: str) -> int:
    label = RulePart("LABEL", "=", target)
    return next(number for number, line in enumerate(lines) if label in line)


def _fits(part: RulePart, value: str) -> bool:
    globs = part.value.split("|")
    text = value.rstrip() if part.key.startswith("ATTR") else value
    return any(fnmatchcase(text, glob) for glob in globs) == (part.op == "==")


def _of(directory: Path, part: RulePart) -> str:
    if part.key == "KERNELS":
        return directory.name
    if part.key == "ATTRS":
        name = (part.name or "").replace("$id", directory.name)
        return _content(directory / name) or "\0"
    link = directory / {"SUBSYSTEMS": "subsystem", "DRIVERS": "driver"}[part.key]
    return os.path.basename(os.readlink(link)) if link.is_symlink() else ""


def _content(file: Path) -> str | None:
    try:
        if not file.is_file():
            return None  # a folder, or a pipe that never answers
        return file.read_bytes().decode("utf-8", "backslashreplace").rstrip("\n")
    except OSError:
        return None


# udev's test mode starts programs, which write to the tree; what is done below /dev, /etc/udev and
# /run stays in the namespace.
_TEST = """
mkdir -p /run/empty /run/udev/rules.d
mount -t tmpfs tmpfs /run/empty
mknod /run/empty/null c 1 3
mount --bind /run/empty /dev
printf '%s' "$1" > /run/udev/rules.d/89-hbatune.rules
printf '%s' "$2" > /etc/udev/hbatune-write.sh
exec "$3" test --action="$4" "$(readlink -f "/sys/class/block/$5")" 2>&1
"""

UDEVADM = os.environ.get("HBATUNE_UDEVADM") or shutil.which("udevadm")


def real(root: Path, rules: str, disk: str, action: str = "add") -> str:
    """Have udev itself evaluate the rules for a disk of the tree, and return what it says."""
    assert UDEVADM is not None
    done = run(root, ["sh", "-c", _TEST, "sh", rules, format_writer(), UDEVADM, action, disk])
    return done.decode(errors="replace")


def has_udev() -> bool:
    """Whether udev is installed, in a version whose test mode starts programs (before 255)."""
    if UDEVADM is None:
        return False
    version = subprocess.run([UDEVADM, "--version"], capture_output=True, text=True, check=False)
    return version.stdout.strip().isdecimal() and int(version.stdout) < 255
