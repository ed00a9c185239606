"""Make a snapshot anonymous, by its values: a text that is not known to be public is replaced.

Public are numbers, words of fixed vocabularies, kernel names, addresses of buses, and vendors,
models and versions. A keyed hash replaces every other text, the same everywhere in the file. Its
key is discarded. Ids stay distinct, still match each other, and cannot be guessed by brute force.
"""

import hashlib
import os
import re
from collections.abc import Collection
from enum import StrEnum
from functools import cache
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from hbatune.facts import classify, ids, model
from hbatune.facts.families import families
from hbatune.policy.profile import OptionRule, Origin, Profile, Rule
from hbatune.settings.table import SETTINGS
from hbatune.shipped import find_shipped
from hbatune.snapshot.file import Snapshot

# Minimum length of a name that is also searched in vendors, models and versions.
_MIN_NAME_LENGTH = 6

# Vendors, models and versions, and hbatune's own words and sentences.
_PUBLIC_FIELDS = frozenset(
    (
        *("vendor", "model", "revision", "firmware", "driver_version", "product", "document"),
        *("family", "unread", "depth_trap", "unmanaged_by", "pattern", "block_size", "hbatune"),
        *("schema", "raid_level", "selector"),
    )
)
_ID_FIELDS = frozenset(("id", "rolled_back", "exclude", "targets", "members", "uses"))
_PATH_FIELDS = frozenset(
    (
        *("sysfs", "device_node", "file", "files", "attribute", "irq_policies", "mounts", "point"),
        *("volumes", "alias", "label", "use", "used_for"),
    )
)
# Texts whose digits are numbers. In any other text, digits may be a serial number.
_NUMERIC_FIELDS = frozenset(("affinity", "effective", "serves", "value", "rendered"))
_FILES = frozenset(("attributes", "parameters", "options", "inspected"))
# The fields of shipped rules and profiles that depend on the host.
_INSTALLED = frozenset(("rules", "options", "file", "files"))

_NUMBER = re.compile(r"[<>]?[-+]?\d{1,20}(\.\d+)?|0x[0-9a-f]{1,8}|\d[\d,/-]*")
# Names that the kernel numbers, and addresses: SCSI, USB, PCI, a mainframe's channels, eMMC, ACPI.
_KERNEL_NAME = re.compile(
    r"(sd|vd|xvd|hd|dasd)[a-z]{1,3}\d*"
    r"|(dm-|md|nvme|nvme-subsys|mmcblk|nbd|rbd|zram|loop|host|target|rport-|vport-|session|port-"
    r"|connection|end_device-|expander-|phy-|ata|link|usb|fw|virtio|vbd-|ctlr_|adapter|pseudo_|css"
    r"|irq|msix-|controller-|host-|srp-mlx\d+_)\d+([cnp.:-]\d+)*"
    r"|\d{1,5}(:\d{1,5}){0,2}:\d{1,20}|\d{1,3}-\d{1,3}(\.\d{1,3})*(:\d\.\d)?"
    r"|(pci)?[0-9a-f]{4,8}:[0-9a-f]{2}(:[0-9a-f]{2}\.[0-7](-usb-0:[\d.]+:\d\.\d)?)?"
    r"|30[0-9a-f]{6}|[0-9a-f]\.[0-9a-f]\.[0-9a-f]{4}|mmc\d+(:[0-9a-f]{4})?"
    r"|[A-Z]{4,8}[0-9A-F]{0,4}:[0-9a-f]{2}|(host-\d+-)?scsi-[\d:]+|ata-\d+(-scsi-[\d:]+)?"
    r"|(sd|vd|xvd|hd|dasd|nvme|dm-|md|mmcblk)(\[[^\]]{1,9}\]|[*?]|\d|[cnp])*"  # a glob
)
_LUN = re.compile(r"(.*?)((?:-lun-\d+)?)", re.DOTALL)
# The public beginning of a kernel's release: its numbers, and words of distributions; and of a UUID
# of device-mapper: the type of the device.
_BEGINNINGS = {
    "kernel": re.compile(
        r"[\d.]*([-+.~_](\d{1,5}|(deb|el|fc|bpo|rc)\d+|amd64|arm64|aarch64|x86_64|s390x|ppc64le|aws"
        r"|azure|cloud|default|gcp|generic|lowlatency|pve|rt)(?![a-z0-9]))*"
    ),
    "uuid": re.compile(r"((part\d+-)?(mpath|LVM|CRYPT-[A-Z0-9]+|DMRAID|VERITY|stratis-1))?"),
}


def anonymise_snapshot(snapshot: Snapshot, *, key: bytes | None = None) -> Snapshot:
    """Return the snapshot without names of hosts, drives and people; ``key`` is for tests."""
    hider = _Hider(os.urandom(32) if key is None else key, snapshot)
    # Earlier counts are keyed by identity.
    hidden: Snapshot = hider.hide(snapshot, "snapshot")
    return replace(hidden, anonymous=True, looks=())


class _Hider:
    """Replaces the private texts of one snapshot."""

    def __init__(self, key: bytes, snapshot: Snapshot) -> None:
        self._key = key
        machine = snapshot.machine
        stable = {ids.extract_stable_part(e.id) for e in machine.endpoints}
        nameless = {ids.extract_stable_part(e.id) for e in machine.endpoints if ids.is_nameless(e)}
        profiles = {p.name for p in snapshot.policy.profiles if p.origin is not Origin.SITE}
        self._words = _list_words() | nameless | profiles
        hosts = {machine.hostname, machine.hostname.partition(".")[0]}
        names = (hosts | stable) - self._words
        # A host may be called like a device that it does not have.
        devices = {host.name for adapter in machine.adapters for host in adapter.hosts}
        devices.update(endpoint.target for endpoint in machine.endpoints)
        self._hosts = hosts - self._words - devices
        self._names = {name.lower() for name in names if len(name) >= _MIN_NAME_LENGTH}
        self._hide_names = cache(self._hide_names_in)  # few vendors, models and versions differ

    def hide(self, value: Any, field: str, *, numeric: bool = False) -> Any:
        """Return a value without private texts; ``field`` is the name of its field or file."""
        if isinstance(value, str) and not isinstance(value, StrEnum):
            return self._hide_text(value, field, numeric)
        if isinstance(value, tuple):
            return tuple(self.hide(item, field, numeric=numeric) for item in value)
        if isinstance(value, dict):
            hidden = {}
            for name, item in value.items():
                is_file = field in _FILES
                item_field = re.split("[/ ]", name)[-1] if is_file else field
                hidden[self._hide_key(name, field)] = self.hide(item, item_field, numeric=is_file)
            return hidden
        if isinstance(value, Struct):
            changed = {}
            for name in _list_private_fields(value):
                is_file = isinstance(value, model.Attribute)
                item_field, item_numeric = (field, numeric) if is_file else (name, False)
                changed[name] = self.hide(getattr(value, name), item_field, numeric=item_numeric)
            return replace(value, **changed)
        return value

    def _hide_text(self, text: str, field: str, numeric: bool) -> str:
        is_public = field == "evidence" and text.startswith(("vendor ", "model ", "channel "))
        if is_public or field in _PUBLIC_FIELDS:
            return self._hide_names(text)
        if field in _ID_FIELDS:
            return self._hide_id(text)
        if field in _PATH_FIELDS:
            return self._hide_path(text)
        if field in _BEGINNINGS and (match := _BEGINNINGS[field].match(text)):
            private = text[match.end() :]
            return match[0] + (f"-{self._hash(private)}" if private else "")
        is_text = field in ("scheduler", "iopolicy", "zio")
        numeric = field in _NUMERIC_FIELDS or (numeric and not is_text)
        is_secret = field in ("hostname", "boot_id")
        for word in text.split():
            is_word = self._is_public(word) or self._is_public(word.strip("[]"))
            is_secret = is_secret or not (is_word or (numeric and _NUMBER.fullmatch(word)))
        return self._hash(text) if is_secret else text

    def _hide_key(self, name: str, field: str) -> str:
        if field in ("adapters", "disks", "local_cpus", "members"):
            return self._hide_id(name)
        # hbatune chooses the other keys, except the names of devices in them.
        is_private = field == "uses" or re.match(r"(\w+/)?(holders|slaves)/", name)
        return self._hide_path(name) if is_private else name

    def _hide_names_in(self, text: str) -> str:
        """Return a public text, or its hash if it contains a name of this host or its drives."""
        lower = text.lower()
        return self._hash(text) if any(name in lower for name in self._names) else text

    def _hide_id(self, id: str) -> str:
        """Return an id whose route has kernel numbers only, or any name of a disk."""
        name, separator, route = id.rpartition("@") if "@" in id else (id, "", "")
        place, tilde, suffix = route.partition("~")
        adapter, slash, port = place.partition("/")
        if not self._is_public(port) and (match := _LUN.fullmatch(port)):
            port = self._hide_word(match[1]) + match[2]
        if not self._is_public(name.removeprefix("/dev/")):
            name = self._hide_word(name)
        adapter, suffix = map(self._hide_word, (adapter, suffix))
        return f"{name}{separator}{adapter}{slash}{port}{tilde}{suffix}"

    def _hide_path(self, path: str) -> str:
        return "/".join(map(self._hide_word, path.split("/")))

    def _hide_word(self, word: str) -> str:
        return word if not word or self._is_public(word) else self._hash(word)

    def _is_public(self, word: str) -> bool:
        is_kernel_name = _KERNEL_NAME.fullmatch(word) and word not in self._hosts
        return bool(is_kernel_name) or word in self._words

    def _hash(self, text: str) -> str:
        # All spellings of a name are equal. 64 bits are enough to be unique.
        name = ids.normalise_name(text).encode()
        return f"anon-{hashlib.blake2b(name, key=self._key, digest_size=8).hexdigest()}"


@cache
def _list_words() -> frozenset[str]:
    """Return the vocabulary: the kernel's and standard words, and hbatune's own names."""
    words = {*SETTINGS, *(path.name for path in find_shipped("rules").rglob("*.toml"))}
    for line in (find_shipped("templates") / "public-words.txt").read_text().splitlines():
        if not line.startswith("#"):
            words.update(line.split())
    for family in families():
        words.update((family.name, *family.drivers))
    for setting in SETTINGS.values():
        words.update(setting.path.split("/"))
    for text in (*model.MissingText, *classify.Unclassified):
        words.update(text.split())
    return frozenset(words)


def _list_private_fields(value: Struct) -> Collection[str]:
    """Return the fields to check: not the texts of shipped rules, and no names by the kernel."""
    fields = set(value.__struct_fields__)
    match value:
        case model.Vector():
            return fields - {"names"}
        case Rule() | Profile() if value.origin is not Origin.SITE:
            return fields & _INSTALLED
        case OptionRule() if value.file.startswith(f"{find_shipped('rules')}/"):
            return fields & _INSTALLED
    return fields
