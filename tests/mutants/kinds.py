"""The kinds of files that are read, and what reads them: a value, or an error with a message."""

import argparse
import contextlib
import gzip
import importlib
import io
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from random import Random
from re import search
from typing import Any
from unittest.mock import patch

from msgspec import MsgspecError, Struct, json
from msgspec.structs import replace

from hbatune.act import (
    interrupts,
    journal,
    journal_format,
    lock,
    marks,
    rollback_record,
    system,
)
from hbatune.act.journal import Entry, Journal, Run
from hbatune.act.lock import Claim, Hold
from hbatune.act.paths import Paths
from hbatune.agent import client, status
from hbatune.agent.orders import Handled, PassReason, SettingChange
from hbatune.agent.status import LastPass, Status
from hbatune.boot import placement
from hbatune.boot.placement import Manifest, PlacedFile
from hbatune.cli.parser import make_full_parser
from hbatune.errors import HbatuneError
from hbatune.facts.health import ErrorCounters, find_earlier_counters
from hbatune.plan.rows import RevertedValue
from hbatune.probe import history
from hbatune.probe.history import History, list_entries
from hbatune.report.page import ReportData
from hbatune.report.summary import make_sections, render_page
from hbatune.snapshot import file as snapshot_file
from hbatune.snapshot.anonymous import anonymise_snapshot
from hbatune.text import terminal
from hbatune.watch import latency
from hbatune.watch.latency import Interval, Latencies
from hbatune.workers import find_this_process
from tests.mutants.mutate import Source
from tests.unit import report_server as reported

_RECORDED = Path(__file__).parent / "recorded"

_COMMANDS = (
    *(("list",), ("list", "--json"), ("list", "sda"), ("list", "nvme0n1")),
    *(("check",), ("check", "--json"), ("check", "--profile", "oltp", "sda")),
    *(("diff",), ("diff", "--all"), ("diff", "--module-options", "--json"), ("diff", "sda")),
    *(("explain", "sda"), ("explain", "dm-0"), ("explain", "nvme0n1", "nr_requests")),
    ("report", "FOLDER/page.html", "--force"),
)
_FILES = (
    *(("audit", "FOLDER/host.snapshot"), ("audit", "FOLDER/host.snapshot", "--json")),
    ("compare", "FOLDER/host.snapshot", "FOLDER/anonymous.snapshot"),
    ("check", "--since", "FOLDER/anonymous.snapshot", "--snapshot", "FOLDER/host.snapshot"),
)
"""Commands that read files of two hosts: here a mutant, and its anonymous form."""

_WIDTHS = (None, 20, 80, 200)
"""The columns of a terminal, or None in a pipe."""


class Mutant(Struct, frozen=True):
    """The result of one mutant: its kind, whether it was accepted, and its error."""

    kind: str
    taken: bool
    wrong: str = ""


def tried(seed: int, folder: Path) -> Mutant:
    """Read the mutant of this seed and return the result."""
    random = Random(seed)
    kind = random.choice(_TURNS)
    try:
        accepted = KINDS[kind](random, folder)
    except HbatuneError as error:
        return Mutant(kind, taken=False, wrong="" if error.message else "no message")
    except Exception:  # noqa: BLE001  (that none comes is what is tried)
        return Mutant(kind, taken=True, wrong=traceback.format_exc(limit=-6))
    return Mutant(kind, accepted)


def counted(seeds: range, folder: Path) -> tuple[Counter[str], list[tuple[int, str, str]]]:
    """Count the accepted and refused mutants of each kind, and list the failures."""
    counts, wrong = Counter[str](), []
    with _elsewhere(folder):
        for seed in seeds:
            mutant = tried(seed, folder)
            counts[f"{mutant.kind}, {'taken' if mutant.taken else 'refused'}"] += 1
            if mutant.wrong:
                wrong.append((seed, mutant.kind, mutant.wrong))
    return counts, wrong


@contextlib.contextmanager
def _elsewhere(folder: Path) -> Iterator[None]:
    """Have the files whose places no caller names stand in a folder."""
    names = (
        "state",
        "rollbacks",
        "rollbacks_now",
        "hands_off",
        "hands_off_now",
        "irqs",
    )
    with contextlib.ExitStack() as stack:
        for name in names:
            stack.enter_context(patch.object(Paths, name, folder / name))
        yield


@cache
def _data() -> ReportData:
    return reported.seen()


@cache
def _snapshots() -> tuple[Source, ...]:
    return tuple(Source(gzip.decompress(path.read_bytes())) for path in sorted(_RECORDED.iterdir()))


@cache
def _parser() -> argparse.ArgumentParser:
    return make_full_parser()


def _snapshot(random: Random, folder: Path) -> bool:
    path = folder / "host.snapshot"
    path.write_bytes(gzip.compress(random.choice(_snapshots()).mutant(random), 1))
    loaded = snapshot_file.load_snapshot(path)
    chosen = (*random.choice(_COMMANDS), "--snapshot", "FOLDER/host.snapshot")
    if random.random() < 0.2:
        anonymous = snapshot_file.encode_snapshot(anonymise_snapshot(loaded))
        (folder / "anonymous.snapshot").write_bytes(anonymous)
        chosen = random.choice(_FILES)
    words = [argument.replace("FOLDER", str(folder)) for argument in chosen]
    args = _parser().parse_args(words)
    command = importlib.import_module(f"hbatune.cli.commands.{words[0]}")
    width = random.choice(_WIDTHS)
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        patch.object(terminal, "get_width", lambda stream=None: width),
    ):
        command.run(args)
    return True


@cache
def _histories() -> tuple[Source, ...]:
    server = _data().machine
    recorded = (
        reported.depth_sweep(server),
        reported.kept(server),
        [*reported.block_sweep(server), *reported.mix_sweep(server)],
        [reported.proof(server, 1.25, 5, 340), *reported.lone(server)],
    )
    return tuple(Source(json.encode(History(tuple(records)))) for records in recorded)


def _history(random: Random, folder: Path) -> bool:
    path = folder / "history.json"
    path.write_bytes(random.choice(_histories()).mutant(random))
    records = history.load(path).records
    data = replace(_data(), records=records)
    for entry in list_entries(records, data.machine):
        assert entry.since is None or entry.since.iops == entry.since.iops
    if random.random() < 0.5:
        text = render_page(data, make_sections(data))
        # As attributes of a picture; prose may well have the word.
        assert not search(r'[a-z0-9]+="[^"]*\b(nan|inf)\b[^"]*"', text), "a number is not finite"
    return True


def _of_state(make: Callable[[], Any], read: Callable[[Path, Random], object]) -> Any:
    """Return a function that passes a mutant of the file from ``make`` to ``read``."""

    @cache
    def source() -> Source:
        return Source(json.encode(make()))

    def try_mutant(random: Random, folder: Path) -> bool:
        (folder / "state").mkdir(exist_ok=True)
        path = folder / "state" / "file"
        path.write_bytes(source().mutant(random))
        return bool(read(path, random))

    return try_mutant


def _a_journal() -> Journal:
    server, me = _data().machine, find_this_process()
    first, second = server.endpoints[:2]
    entries = (
        Entry(first.id, first.target, first.adapter, "nr_requests", 256, 2048, diskseq=4),
        Entry(first.id, first.target, first.adapter, "scheduler", "none", "mq-deadline", me),
        Entry(second.id, second.target, None, "of_a_newer_version", "x", effect="y"),
    )
    run = Run("apply", "oltp", me, reported.NOW)
    reverted = (RevertedValue(first.id, "nr_requests", 2048),)
    return Journal(server.boot_id, entries, run, reverted)


def _read_journal(path: Path, random: Random) -> bool:
    server = _data().machine
    boot_id = random.choice((server.boot_id, "another"))
    # Wrong values with valid checksums: without one, all of it would be damaged.
    with contextlib.suppress(MsgspecError, ValueError, KeyError, RecursionError):
        path.write_bytes(journal_format.seal_document(path.read_bytes(), 1))
    journal.list_changed_settings(path, boot_id)
    loaded = journal.load(path, boot_id)[0]
    journal.load_with_current_ids(path, server)
    # What is not understood is kept: the next save has it still.
    assert json.decode(json.encode(loaded), type=Journal) == loaded
    return True


def _a_status() -> Status:
    disk = _data().machine.endpoints[0]
    change = SettingChange(
        disk.target, disk.id, "nr_requests", 256, 2048, "written", handled=next(iter(Handled))
    )
    last = LastPass(reported.NOW, next(iter(PassReason)), 3)
    return Status(find_this_process(), reported.NOW, "oltp", 12, (change,), last, error="an error")


def _read_status(path: Path, random: Random) -> bool:
    client.find_daemon(path)
    loaded = status.load_status(path)
    return loaded is not None and isinstance(loaded.well, bool)


def _latencies() -> Latencies:
    counts = {"8:0": {300: 5, 482: 3, 900: 1}, "259:1": {64: 1_000_000}}
    return Latencies(tuple(Interval(100.0 + number, 10.0, counts) for number in range(3)))


def _read_latency(path: Path, random: Random) -> bool:
    intervals = latency.load_latencies(path).intervals
    chosen = latency.select_intervals(intervals, 90, 200)
    histogram = latency.make_histogram(chosen, ("8:0", "259:1"))
    return bool(histogram.counts) and histogram.percentile(99) >= 0


def _a_manifest() -> Manifest:
    placed = (PlacedFile("/etc/udev/rules.d/89-hbatune.rules", ("ab", "cd")),)
    return Manifest(placed, ("/etc/udev/rules.d",))


def _read_hands_off(path: Path, random: Random) -> bool:
    with patch.object(Paths, "rollbacks", path.parent):
        return not rollback_record.load(Paths()).damaged


def _read_irqs(path: Path, random: Random) -> bool:
    with patch.object(Paths, "irqs", path):
        return all(0 <= irq < 1 << 32 for irq in interrupts.read_placed(Paths()))


def _counts() -> list[ErrorCounters]:
    server = _data().machine
    values = {server.endpoints[0].id: {"errors": 3}, server.adapters[0].target: {"fatal": 1}}
    return [ErrorCounters(server.boot_id, 1_799_000_000 + number, values) for number in range(3)]


def _read_counted(path: Path, random: Random) -> bool:
    before = marks.load_counted(path)
    current = ErrorCounters(_data().machine.boot_id, 1_800_000_000, {})
    return find_earlier_counters(before, current) is not None


def _ids() -> list[str]:
    return [vector.id for vector in _data().machine.vectors]


def _claim() -> Claim:
    me = find_this_process()
    return Claim(me.pid, me.start_time, "sda", _data().machine.endpoints[0].id)


Try = Callable[[Random, Path], bool]
KINDS: dict[str, Try] = {
    "snapshot": _snapshot,
    "history": _history,
    "journal": _of_state(_a_journal, _read_journal),
    "status": _of_state(_a_status, _read_status),
    "latency": _of_state(_latencies, _read_latency),
    "manifest": _of_state(_a_manifest, lambda path, _: placement.load_installed(Path("/"), path)),
    "claim": _of_state(_claim, lambda path, _: lock.find_outstanding_claims(path)),
    "hold": _of_state(
        lambda: Hold(find_this_process(), tuple(_ids()[:9])),
        lambda path, _: lock.read_held_ids(path.parent),
    ),
    "counters": _of_state(_counts, _read_counted),
    "rolled back": _of_state(lambda: {"ids": _ids()[:5], "lifted": _ids()[5:7]}, _read_hands_off),
    "immovable": _of_state(
        _ids,
        lambda path, _: (
            interrupts.with_records(_data().machine, Journal(""), path) != _data().machine
        ),
    ),
    "placed interrupts": _of_state(lambda: [30, 31, 32], _read_irqs),
    "module options": _of_state(_ids, lambda path, _: not system.read_module_options(path)),
}
"""What makes a mutant of each kind in a folder and has it read; True where it was taken."""

_TURNS = (*KINDS, *["snapshot"] * 25, *["history"] * 2, *["journal"] * 4)
