"""Read the coalescing in the firmware of adapters that the site has opened, and remember it.

A page is read once per boot and kept, with its age, in a file on a memory file system. An apply
reads it again if it may set it, or if no page is known. The file first says that a read has begun:
after a refusal or a kill, no look sends another request.
"""

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from time import CLOCK_BOOTTIME, clock_gettime

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hbatune import loader
from hbatune.act import files
from hbatune.facts.attributes import FIRMWARE_FILE, Survey
from hbatune.facts.families import family_named
from hbatune.facts.model import Attribute, Control, Machine, Missing, MissingText, Reason
from hbatune.facts.survey import Requests
from hbatune.facts.targets import list_adapter_names
from hbatune.mpi import PageWord
from hbatune.plan.rows import DONE_OUTCOMES, Restored, Row
from hbatune.policy.config import Site
from hbatune.settings.table import FIRMWARE_COALESCING

Page = Attribute | Missing
Reader = Callable[[Requests], Survey]
_UNCONFIRMED: Page = Missing(Reason.UNREADABLE, text=MissingText.UNCONFIRMED_PAGE)


class _Record(Struct, frozen=True):
    """A page without its bytes, which only a write needs, and its seconds since boot."""

    page: Page
    seconds: float


def attach_pages(
    machine: Machine, site: Site, folder: Path, reader: Reader, *, fresh: bool
) -> Machine:
    """Return the machine with the pages of opened adapters, ``fresh`` ones if they may be set."""
    controls = []
    for control in machine.controls:
        adapter = machine.adapters_by_target[control.adapter]
        has_page = FIRMWARE_COALESCING in family_named(adapter.family).coalescing
        for name in site.adapter.keys() & list_adapter_names(adapter):
            if has_page and (access := site.adapter[name].firmware) is not None:
                page = _get_page(control, access, folder / control.target, reader, fresh=fresh)
                control = replace(control, attributes=control.attributes | {FIRMWARE_FILE: page})
        controls.append(control)
    return replace(machine, controls=tuple(controls))


def _get_page(control: Control, access: str, path: Path, reader: Reader, *, fresh: bool) -> Page:
    record = loader.load_or(path, None, loader.STATE_BOUNDS, _Record)
    is_read_only = access == "read"
    fresh = fresh and not (is_read_only and record and isinstance(record.page, Attribute))
    if os.geteuid() == 0 and (record is None or fresh):
        try:
            _save(path, _UNCONFIRMED)  # no request that could not be remembered
            page = reader({control.sysfs: (FIRMWARE_FILE,)})[control.sysfs][FIRMWARE_FILE]
            if isinstance(page, Attribute):
                page = Attribute(page.text.rpartition(" ")[0], True)
            record = _save(path, page)
        except OSError as error:
            return Missing(Reason.UNREADABLE, error.errno, str(path))
    if record is None:
        return Missing(Reason.UNREADABLE, text=MissingText.NOT_ROOT)
    if isinstance(record.page, Missing):
        return record.page
    words = [record.page.text, f"age:{int(clock_gettime(CLOCK_BOOTTIME) - record.seconds) // 60}"]
    return Attribute(" ".join([*words, PageWord.READ_ONLY] if is_read_only else words), True)


def note_rows(folder: Path, rows: Iterable[Row | Restored]) -> None:
    """Remember the values that a run has read after its writes."""
    for row in rows:
        path, value, page = folder / row.target, row.found, _UNCONFIRMED
        record = loader.load_or(path, None, loader.STATE_BOUNDS, _Record)
        if value is None and row.outcome in DONE_OUTCOMES:
            value = row.before if isinstance(row, Restored) else row.value
        if record is not None and isinstance(record.page, Attribute) and value is not None:
            words = [word for word in record.page.text.split()[1:] if word != PageWord.OFF]
            page = Attribute(" ".join((str(value), *words)), True)
        with suppress(OSError):  # the old record has an age
            _save(path, page)


def _save(path: Path, page: Page) -> _Record:
    record = _Record(page, clock_gettime(CLOCK_BOOTTIME))
    files.replace(path, msgspec.json.encode(record), mode=files.READABLE_MODE)
    return record
