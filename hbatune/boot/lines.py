"""The lines of a udev rules file (udev(7)), and the events and disks to which they apply.

The rules decide which values a disk gets, save its original ones, and write to idle disks. A small
program writes the rest (``udev/hbatune-write.sh.j2``): udev does not repeat a write that failed.
The file's template (``udev/hbatune.rules.j2``) has the lines that all profiles share.

The rules skip all but plain disks, and disks excluded by any name. If udev cannot express a name
exactly, the rules skip more disks than necessary; the daemon tunes the remaining ones.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from hbatune.act.paths import Paths
from hbatune.facts import model
from hbatune.facts.ids import WORLD_WIDE, extract_lasting_part, extract_stable_part, normalise_name
from hbatune.facts.udev import UNSET_PROPERTY
from hbatune.policy import config, profile
from hbatune.settings import table
from hbatune.settings.setting import Setting, UdevWriter
from hbatune.settings.table import SCHEDULER, SETTINGS

_PLAIN = re.compile(r"[A-Za-z0-9 _.,:/@+=-]+", re.ASCII)

_LEFT = ".HBATUNE_SCHEDULER_LEFT"


class RulePart(Struct, frozen=True):
    """One ``KEY{name}op"value"``; ``op`` is ``==`` or ``!=`` for a match, ``=`` for an assignment.

    The value of a match is a glob, or several with ``|`` between them.
    """

    key: str
    op: str
    value: str
    name: str | None = None


RuleLine = tuple[RulePart, ...]
"""A rule: its parts, matches first."""


class RuleSection(Struct, frozen=True):
    """Related lines, with the comment above them."""

    title: str
    lines: tuple[RuleLine, ...]


def match_key(key: str, value: str, name: str | None = None) -> RulePart:
    """Match a key against globs."""
    return RulePart(key, "==", value, name)


def exclude_key(key: str, value: str, name: str | None = None) -> RulePart:
    """Match if the key does not fit the globs."""
    return RulePart(key, "!=", value, name)


def match_attribute(path: str, value: str) -> RulePart:
    """Match an attribute of the disk; a missing one matches nothing."""
    return RulePart("ATTR", "==", value, path)


def match_property(name: str, value: str) -> RulePart:
    """Match a property of the event; an unset property is empty."""
    return RulePart("ENV", "==", value, name)


def set_property(name: str, value: str) -> RulePart:
    """Set a property; one whose name begins with a dot is not kept in udev's database."""
    return RulePart("ENV", "=", value, name)


def append_parts(matches: Iterable[RuleLine], *parts: RulePart) -> list[RuleLine]:
    """Return the lines with these parts at the end of each."""
    return [(*line, *parts) for line in matches]


def jump_to(label: str) -> RulePart:
    """Continue at a later label."""
    return RulePart("GOTO", "=", label)


END = jump_to("hbatune_end")
"""Skips the device."""


def is_plain(text: str) -> bool:
    """Return whether the text matches only itself in a value."""
    return bool(_PLAIN.fullmatch(text))


def set_wish(name: str, text: str, *, is_left: bool = False) -> RuleLine:
    """Return the parts that set a wish; the daemon may want another scheduler if it ``is_left``."""
    wish = set_property(make_wish_property(name), text)
    return (wish, set_property(_LEFT, "1" if is_left else "0")) if name == SCHEDULER else (wish,)


def make_wish_property(name: str) -> str:
    """Return the property that holds the value that the rules require for a setting."""
    return f".HBATUNE_{name.upper()}"


def list_saved_settings(values: Collection[str]) -> tuple[str, ...]:
    """Return the settings whose original values are saved: all that a write may change.

    The only scheduler tunable saved is async_depth: no other one may change while the scheduler
    stays, and a switch of the scheduler replaces all of them.
    """
    # Not only the written ones: a scheduler switch resets others.
    affected = table.list_affected_settings(values)
    names = (table.ASYNC_DEPTH if name == table.SCHEDULER_TUNABLES else name for name in affected)
    return tuple(dict.fromkeys(names))


def save_values(values: Collection[str]) -> Iterator[RuleLine]:
    """Yield the lines that save a value, unless it is saved, before a wanted setting changes it."""
    for name in list_saved_settings(values):
        saved = table.make_property_name(name)
        for path in SETTINGS[name].paths:
            unsaved = (match_attribute(path, "?*"), match_property(saved, ""))
            for cause in values:
                if name in list_saved_settings((cause,)):
                    wished = match_property(make_wish_property(cause), "?*")
                    yield wished, *unsaved, set_property(saved, f"$attr{{{path}}}")


_IDLE = ".HBATUNE_IDLE"
_SWITCHED = ".HBATUNE_SWITCHED"


def _match_now(path: str, value: str) -> RulePart:
    """Match a file of a SCSI disk as it is now: udev reads it again only by another path."""
    return match_attribute(f"device/block/$kernel/{path}", value)


def write_values(wishes: Mapping[str, Collection[str]]) -> Iterator[RuleLine]:
    """Yield the lines in which udev writes to an idle disk, and clears the wishes it fulfilled.

    Most disks then need no program. It continues, in the same order, at the first wish that the
    kernel has refused or that needs the number in another file. A wished depth is always higher.
    """
    earlier: RuleLine = (match_property(_IDLE, "1"),)
    for name in sorted(wishes, key=lambda name: SETTINGS[name].order):
        wish = make_wish_property(name)
        if not SETTINGS[name].most_in:
            for text in wishes[name]:
                for parts in _write_text(SETTINGS[name], wish, text):
                    yield *earlier, match_property(wish, text), *parts
        earlier = (*earlier, match_property(wish, ""))


def _write_text(setting: Setting, wish: str, text: str) -> Iterator[RuleLine]:
    """Yield the parts that write one text, and clear its wish if the file then has it."""
    current = f"*[[]{text}[]]*" if setting.udev is UdevWriter.BRACKETED else text
    differs = exclude_key("ATTR", current, setting.path)
    write = RulePart("ATTR", "=", text, setting.path)
    if setting.udev is UdevWriter.BRACKETED:
        yield match_attribute(setting.path, "*[[]*"), differs, write, set_property(_SWITCHED, "1")
    elif setting.udev is UdevWriter.SCHEDULED:
        yield _match_now(SETTINGS[SCHEDULER].path, "none|*[[]none[]]*"), set_property(wish, "")
        # A switch has changed the number that udev has read.
        yield match_property(_SWITCHED, "1"), write
        yield exclude_key("ENV", "1", _SWITCHED), differs, write
    else:
        yield differs, write
    yield _match_now(setting.path, f"{text}|{current}"), set_property(wish, "")


def start_writer(values: Collection[str]) -> RuleLine:
    """Return the line that starts ``udev/hbatune-write.sh.j2``, and records what it could not set.

    udev does not repeat a write refused with EBUSY. The program is not in RUN, which starts after
    the assignments of all rules: it would overwrite an administrator's later ones.
    """
    words = ["/bin/sh", str(Paths.udev_writer), "$sys$devpath"]
    # nr_requests depends on the scheduler, which is read even if no rule sets it.
    for name in sorted(dict.fromkeys((SCHEDULER, *values)), key=lambda name: SETTINGS[name].order):
        setting = SETTINGS[name]
        wish = f"$env{{{make_wish_property(name)}}}"
        words.append(f"{setting.udev}:{setting.path}:{wish}:{setting.most_in}")
    return match_key("PROGRAM", " ".join(words)), set_property(UNSET_PROPERTY, "$result")


KNOWN_PROPERTY = ".HBATUNE_KNOWN"
"""Whether the disk has been seen before this event."""

_WWIDS = ("device/wwid", "wwid")  # SCSI disk, NVMe namespace
_WWID = ".HBATUNE_WWID"
_UNNAMED = exclude_key("ENV", "1", _WWID)
# At least the world-wide names that are fillers (``ids.make_stable_name``).
_FILLERS = (
    "*000000000|*[fF][fF][fF][fF][fF][fF][fF][fF][fF]|nvme.????--*|nvme.????-[23]0*|t10.* 0*"
    "|t10.* [dDfFnNuUxX]*|t10.* *123456789*|t10.*[oO].[eE].[mM]."
)
"""Matches a disk without a world-wide name."""
# Not a device name, or a name that changes from boot to boot.
_NO_DEVICE = re.compile(r"iscsi|nvme-.*|.*-usb-.*|(nvme|virtio|host|irq)\d+|")
_KERNELS_OWN = re.compile(
    r"[sv]d[a-z]+|nvme\d+(c\d+)?(n\d+)?|(host|virtio|dm-|irq)\d+"
    r"|[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
)


def is_for_maps(criteria: profile.Match) -> bool | None:
    """Return whether a rule is for every map or for no map, or None if udev cannot see that."""
    if criteria.kind and model.Kind.MAP not in criteria.kind:
        return False
    if criteria.multipath and profile.Multipath.DM not in criteria.multipath:
        return False
    return True if replace(criteria, kind=(), multipath=()) == profile.Match() else None


def make_skip_sections(
    site: config.Site, excluded: Collection[str], reverted: Collection[str]
) -> Iterator[RuleSection]:
    """Yield the lines that skip the disks of [site], and the ones with the ``excluded`` ids.

    ``reverted`` are ids that later lines match (``match_disks``).
    """
    skipped = list(chain.from_iterable(map(_match_named_disks, site.exclude)))
    skipped += chain.from_iterable(map(match_disks, excluded))
    wishless = chain.from_iterable(map(match_disks, reverted))
    if _UNNAMED in set(chain(*skipped, *wishless)):
        marks = [(match_attribute(p, "?*"), exclude_key("ATTR", _FILLERS, p)) for p in _WWIDS]
        title = "Which disks have a world-wide name."
        yield RuleSection(title, tuple(append_parts(marks, set_property(_WWID, "1"))))
    lines = tuple(append_parts(dict.fromkeys(skipped), END))
    yield RuleSection("Excluded in [site], or rolled back.", lines)


def match_disks(id: str) -> Iterator[RuleLine]:
    """Yield matches for at least the disk with this id, in any boot: by its name and adapter.

    udev cannot see a name that is not world-wide. In that case every disk of that adapter without a
    world-wide name is matched. ``make_skip_sections`` marks those.
    """
    name, adapter_match = extract_stable_part(extract_lasting_part(id)), _match_adapter(id)
    if name.startswith(WORLD_WIDE):
        for path in _WWIDS:
            yield match_attribute(path, _match_loosely(name)), *adapter_match
    else:
        yield _UNNAMED, *adapter_match


def _match_adapter(id: str) -> RuleLine:
    """Return a match for the adapter in an id, or nothing if udev knows no device by its name."""
    adapter = id.rpartition("@")[2].partition("/")[0]
    is_unknown = "@" not in id or _NO_DEVICE.fullmatch(adapter)
    return () if is_unknown else (match_key("KERNELS", _match_loosely(adapter, ignore_case=True)),)


def _match_named_disks(name: str) -> Iterator[RuleLine]:
    """Yield matches for at least the disks with this name in [site]."""
    stable, adapter_match = extract_stable_part(name), _match_adapter(name)
    digits = normalise_name(stable)
    file = stable.removeprefix("/dev/")
    kernel = file.replace("/", "!")  # as in sysfs
    is_kernel_name = not adapter_match and _KERNELS_OWN.fullmatch(kernel) is not None
    if not is_kernel_name and not digits.startswith("/"):
        # The attribute begins with the type of name (naa., eui., t10.), which people omit.
        glob = "" if digits.startswith(WORLD_WIDE) else "*."
        glob += _match_loosely(digits, ignore_case=True)
        for path in _WWIDS:
            yield match_attribute(path, glob), *adapter_match
        if stable.lower().startswith(WORLD_WIDE):
            return
    if "@" not in name:
        yield (match_key("KERNELS", _match_loosely(kernel)),)
    if file != stable and "/" in file:  # udev's own rules have already set the disk's links
        yield (match_key("SYMLINK", _match_loosely(file)),)
    elif not is_kernel_name:
        # Composed of vendor, model and serial number, which udev cannot see.
        yield _UNNAMED, *adapter_match


def _match_loosely(text: str, *, ignore_case: bool = False) -> str:
    """Return a glob that matches at least the text; blanks, also escaped, have become ``_``."""
    glob = ""
    for char in text:
        if char == "_" or not is_plain(char):
            glob += "*"
        else:
            glob += f"[{char.lower()}{char.upper()}]" if ignore_case and char.isalpha() else char
    return glob
