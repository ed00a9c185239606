"""What a worker looks at again just before it writes, on plain files in place of sysfs."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from hbatune.act import chain, journal, journal_format
from hbatune.act.chain import Chain, Step, WriteResult
from hbatune.act.executor import Means
from hbatune.act.restore import plan_rollback, restore_values
from hbatune.act.writer import write_plan
from hbatune.facts.model import Endpoint, Machine
from hbatune.plan.rows import Outcome, Restored
from hbatune.policy.profile import Exactly
from hbatune.text.limit_text import describe_limit
from tests.kernel.chains import write_chain
from tests.unit.disk_files import Disk, filed, planned
from tests.unit.machines import machine
from tests.unit.profiles import DEADLINE, REQUESTS

SECTORS = "queue/max_sectors_kb"


@pytest.fixture
def means(tmp_path: Path) -> Means:
    return Means(
        tmp_path / "state/journal.json", tmp_path / "run/writers", tmp_path / "spent.json", 2, 20.0
    )


def disk(tmp_path: Path, **files: str) -> Disk:
    defaults = {"queue__scheduler": "[none] mq-deadline", "queue__nr_requests": "975"}
    return Disk(tmp_path / "sys", "sda", **{**defaults, "mq__0__nr_tags": "975", **files})


def build_endpoint(sda: Disk) -> Endpoint:
    """Build the endpoint of a disk, with its sequence number and its tag set."""
    scanned = sda.endpoint()
    number = int(sda.value("diskseq")) if (sda.path / "diskseq").exists() else scanned.diskseq
    return replace(scanned, diskseq=number, tags=975)


def steps(
    sda: Disk, *chain_steps: Step, identity: tuple[tuple[str, str], ...] = ()
) -> list[WriteResult]:
    return list(
        write_chain(Chain("sda", "id", "adapter", None, str(sda.path), chain_steps, identity))
    )


def outcomes(results: list[WriteResult]) -> list[Outcome]:
    return [result.outcome for result in results]


def test_replaced_drive_rejects_old_plan(tmp_path: Path, means: Means) -> None:
    sda = disk(tmp_path, diskseq="12", queue__nomerges="0")
    host = machine(build_endpoint(sda))
    plan = planned(host, ("nomerges", Exactly(1)))
    (sda.path / "diskseq").write_text("13")
    [row] = write_plan(host, plan, filed(means), means)
    assert row.outcome is Outcome.VANISHED
    assert "another device" in describe_limit(row.limit)
    assert sda.value("queue/nomerges") == "0"


def test_requests_never_below_tag_set(tmp_path: Path) -> None:
    sda = disk(tmp_path)
    [result] = steps(sda, Step("nr_requests", 256, None))
    assert result.outcome is Outcome.CONFLICT
    assert "adapter's 975 tags" in (result.said or "")
    assert sda.value("queue/nr_requests") == "975"


def test_foreign_scheduler_blocks_planned_requests(tmp_path: Path) -> None:
    sda = disk(tmp_path, queue__scheduler="none [mq-deadline]", queue__nr_requests="256")
    (sda.path / "queue/scheduler").write_text("[none] mq-deadline")
    [result] = steps(sda, Step("nr_requests", 2048, 256, under="mq-deadline"))
    assert result.outcome is Outcome.CONFLICT
    assert sda.value("queue/nr_requests") == "256"


@pytest.mark.parametrize("error", [errno.EINVAL, errno.EBUSY])
def test_refused_scheduler_cancels_requests(
    tmp_path: Path, means: Means, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    """No bfq module, or another writer that holds the adapter's lock."""
    real = chain._store

    def store(path: str, text: str) -> int | None:
        return error if path.endswith("queue/scheduler") else real(path, text)

    monkeypatch.setattr(chain, "_store", store)
    sda = disk(tmp_path)
    host = machine(build_endpoint(sda))
    rows = {
        row.setting: row
        for row in write_plan(host, planned(host, DEADLINE, REQUESTS), filed(means), means)
    }
    assert (rows["scheduler"].outcome, rows["scheduler"].errno) == (Outcome.REFUSED, error)
    assert rows["nr_requests"].outcome is Outcome.CANCELLED
    assert sda.value("queue/nr_requests") == "975", "the adapter's tag set is what it was"


def map_over(sda: Disk, size: int, uuid: str = "mpath-1", part: str = "") -> None:
    """Put a multipath map, or another device, with this largest request in KiB on the disk."""
    for path, text in (("dm/uuid", uuid), (SECTORS, str(size))):
        file = sda.path / part / "holders/dm-0" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


@pytest.mark.parametrize(("size", "outcome"), [(4096, Outcome.CONFLICT), (512, Outcome.WRITTEN)])
def test_path_never_below_live_map(tmp_path: Path, size: int, outcome: Outcome) -> None:
    sda = disk(tmp_path, queue__max_sectors_kb="4096", queue__max_hw_sectors_kb="16384")
    map_over(sda, size)
    step = Step("max_sectors_kb", 1280, None)
    [result] = write_chain(Chain("sda", "id", "adapter", "dm-0", str(sda.path), (step,)))
    assert result.outcome is outcome
    assert sda.value(SECTORS) == ("4096" if outcome is Outcome.CONFLICT else "1280")


@pytest.mark.parametrize("part", ["", "sda1"])
@pytest.mark.parametrize(
    ("size", "value", "outcome"),
    [
        *((1280, 1024, Outcome.CONFLICT), (1024, 1024, Outcome.WRITTEN)),
        (2147483647, 4096, Outcome.WRITTEN),  # of bcache, which sets no limit itself
    ],
)
def test_request_size_never_below_live_stack(
    tmp_path: Path, size: int, value: int, outcome: Outcome, part: str
) -> None:
    """The plan may have been made before the stack was built: the worker reads it itself."""
    sda = disk(tmp_path, queue__max_sectors_kb="1280", queue__max_hw_sectors_kb="16384")
    map_over(sda, size, "LVM-1", part)
    [result] = steps(sda, Step("max_sectors_kb", value, 1280))
    assert result.outcome is outcome
    if outcome is Outcome.CONFLICT:
        assert result.said == f"not lowered below a live stack: dm-0 sends up to {size} KiB"
    assert sda.value(SECTORS) == ("1280" if outcome is Outcome.CONFLICT else str(value))


def test_request_size_stays_if_stack_cannot_be_read(tmp_path: Path) -> None:
    sda = disk(tmp_path, queue__max_sectors_kb="1280", queue__max_hw_sectors_kb="16384")
    map_over(sda, 512, "LVM-1")
    (sda.path / "holders/dm-0" / SECTORS).unlink()
    [result] = steps(sda, Step("max_sectors_kb", 512, 1280))
    assert (result.outcome, "not known" in str(result.said)) == (Outcome.CONFLICT, True)


def test_new_path_stays_unwritten(tmp_path: Path) -> None:
    sda = disk(tmp_path)
    map_over(sda, 512)
    assert outcomes(steps(sda, Step("nomerges", 1, 0))) == [Outcome.CONFLICT]
    assert sda.value("queue/nomerges") == "0"


def test_map_never_exceeds_paths(tmp_path: Path) -> None:
    sda = disk(tmp_path, queue__max_sectors_kb="512", queue__max_hw_sectors_kb="16384")
    path = sda.path / "slaves/sdb" / SECTORS
    path.parent.mkdir(parents=True)
    path.write_text("512")
    [result] = steps(sda, Step("max_sectors_kb", 4096, 512))
    assert (result.outcome, result.said) == (
        Outcome.CONFLICT,
        "its path sdb takes 512 KiB at most",
    )


# -- the way back ------------------------------------------------------------------------------


def back(sda: Disk, means: Means) -> dict[str, Restored]:
    host: Machine = machine(build_endpoint(sda))
    return {
        row.setting: row for row in restore_values(plan_rollback(host, filed(means), means), means)
    }


@pytest.fixture
def applied(tmp_path: Path, means: Means) -> Callable[..., Disk]:
    def make(**files: str) -> Disk:
        sda = disk(tmp_path, **files)
        host = machine(build_endpoint(sda))
        write_plan(
            host, planned(host, REQUESTS, ("max_sectors_kb", Exactly(4096))), filed(means), means
        )
        return sda

    return make


DEADLINED = {"queue__scheduler": "none [mq-deadline]", "queue__nr_requests": "256"}
TUNABLE = "queue/iosched/async_depth"


def test_scheduler_change_cancels_requests_rollback(
    applied: Callable[..., Disk], means: Means
) -> None:
    sda = applied(**DEADLINED, queue__iosched__async_depth="192")
    assert sda.value("queue/nr_requests") == "2048"
    (sda.path / "queue/scheduler").write_text("[none] mq-deadline")
    (sda.path / "queue/nr_requests").write_text("975")
    (sda.path / TUNABLE).unlink()
    rows = back(sda, means)
    assert sda.value("queue/nr_requests") == "975"
    assert {name: row.gone for name, row in rows.items()} == {
        "nr_requests": True,
        "async_depth": True,
    }
    assert "removed with its scheduler" in str(rows["nr_requests"].limit)
    assert back(sda, means) == {}, "there is nothing left to fail at each further rollback"


def test_rollback_respects_live_map(applied: Callable[..., Disk], means: Means) -> None:
    sda = applied(**DEADLINED, queue__max_sectors_kb="1280", queue__max_hw_sectors_kb="16384")
    assert sda.value(SECTORS) == "4096"
    map_over(sda, 4096)
    row = back(sda, means)["max_sectors_kb"]
    assert (row.outcome, row.done) == (Outcome.REFUSED, False)
    assert "dm-0 sends up to 4096 KiB" in str(row.limit)
    assert sda.value(SECTORS) == "4096"
    (sda.path / "holders/dm-0" / SECTORS).write_text("1280")
    (sda.path / "holders/dm-0/dm/uuid").write_text("LVM-1")
    assert back(sda, means)["max_sectors_kb"].outcome is Outcome.WRITTEN
    assert sda.value(SECTORS) == "1280"


def test_rollback_names_unknown_setting(applied: Callable[..., Disk], means: Means) -> None:
    sda = applied(queue__scheduler="none [mq-deadline]", queue__nr_requests="1024")
    stored_journal = filed(means)
    strange = journal.Entry(build_endpoint(sda).id, "sda", None, "of_tomorrow", 1, 2)
    journal.save(means.journal, stored_journal.ended((*stored_journal.entries, strange)))
    rows = back(sda, means)
    assert rows["nr_requests"].outcome is Outcome.WRITTEN
    assert rows["of_tomorrow"].outcome is Outcome.REFUSED
    assert "does not have the setting" in str(rows["of_tomorrow"].limit)
    assert [entry.setting for entry in filed(means).entries] == ["of_tomorrow"]


def test_apply_preserves_unknown_setting(applied: Callable[..., Disk], means: Means) -> None:
    sda = applied(queue__scheduler="none [mq-deadline]", queue__nr_requests="1024")
    strange = journal.Entry(build_endpoint(sda).id, "sda", None, "of_tomorrow", 1, 2)
    stored_journal = filed(means)
    journal.save(means.journal, stored_journal.ended((*stored_journal.entries, strange)))
    host = machine(build_endpoint(sda))
    [row] = write_plan(host, planned(host, ("nomerges", Exactly(1))), filed(means), means)
    assert row.outcome is Outcome.WRITTEN
    assert strange in filed(means).entries


def test_foreign_journal_is_ignored(means: Means) -> None:
    means.journal.parent.mkdir(parents=True)
    document = b'{"schema": "hbatune.journal/9", "boot_id": "earlier", "x": [], "entries": []}'
    means.journal.write_bytes(journal_format.seal_document(document, 1))
    assert filed(means).entries == ()
