"""Rules kept in step: apply makes them anew, rollback takes them away, and the baseline is kept."""

from pathlib import Path

import pytest

from hbatune.act import journal
from hbatune.act.executor import Means
from hbatune.act.journal import Entry, Journal
from hbatune.act.marks import mark_restored, with_udev_baselines
from hbatune.act.paths import Paths
from hbatune.act.restore import RollbackUnsavedError, plan_rollback, restore_values
from hbatune.facts.model import Endpoint
from hbatune.facts.udev import SavedTexts
from tests.unit.machines import endpoint, machine


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Paths, "manifest", tmp_path / "state/installed.json")
    monkeypatch.setattr(Paths, "udev_rules", tmp_path / "rules.d/89-hbatune.rules")
    monkeypatch.setattr("hbatune.act.system.reload_rules", lambda: None)


DISK = endpoint()


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> dict[str, SavedTexts]:
    """Fake the udev database: a rule has raised the depth of the disk from 32."""
    texts_by_id = {DISK.id: SavedTexts({"QUEUE_DEPTH": "32", "SCHEDULER": "_none_ kyber"}, "1000")}
    monkeypatch.setattr(
        "hbatune.act.marks.read_saved_texts", lambda endpoints: _of(endpoints, texts_by_id)
    )
    return texts_by_id


def _of(endpoints: object, texts_by_id: dict[str, SavedTexts]) -> dict[str, SavedTexts]:
    assert isinstance(endpoints, list)
    disks: list[Endpoint] = endpoints
    return {disk.id: texts_by_id[disk.id] for disk in disks if disk.id in texts_by_id}


def before(filed: Journal) -> dict[str, object]:
    return {entry.setting: entry.before for entry in filed.entries}


def test_saved_values_become_baseline(database: dict[str, SavedTexts], tmp_path: Path) -> None:
    filed = with_udev_baselines(Journal("boot"), [DISK], tmp_path / "spent")
    assert before(filed) == {"queue_depth": 32, "scheduler": "none"}


def test_unmarked_disk_lacks_baseline(database: dict[str, SavedTexts], tmp_path: Path) -> None:
    filed = with_udev_baselines(Journal("boot"), [DISK], tmp_path / "spent", unmarked={DISK.target})
    assert filed.entries == ()


def test_first_baseline_wins(database: dict[str, SavedTexts], tmp_path: Path) -> None:
    first = Entry(DISK.id, "sda", None, "queue_depth", 7)
    filed = with_udev_baselines(Journal("boot", (first,)), [DISK], tmp_path / "spent")
    assert before(filed) == {"queue_depth": 7, "scheduler": "none"}


@pytest.mark.parametrize(("first", "adopts"), [("none", False), ("mq-deadline", True)])
def test_tunable_baseline_requires_same_scheduler(
    database: dict[str, SavedTexts], tmp_path: Path, first: str, adopts: bool
) -> None:
    """The daemon was there first, and udev saved what it had set."""
    saw = {"SCHEDULER": "none _mq-deadline_", "ASYNC_DEPTH": "256"}
    database[DISK.id] = SavedTexts(saw, "1000")
    filed = Journal("boot", (Entry(DISK.id, "sda", None, "scheduler", first),))
    originals = before(with_udev_baselines(filed, [DISK], tmp_path / "spent"))
    assert ("async_depth" in originals) == adopts


def test_restored_values_are_spent(database: dict[str, SavedTexts], tmp_path: Path) -> None:
    spent = tmp_path / "spent"
    mark_restored([DISK], spent)
    assert with_udev_baselines(Journal("boot"), [DISK], spent).entries == ()
    database[DISK.id] = SavedTexts({"QUEUE_DEPTH": "64"}, "2000")  # the disk went and came back
    assert before(with_udev_baselines(Journal("boot"), [DISK], spent)) == {"queue_depth": 64}


def test_rollback_reports_unsaved_spent_list(
    database: dict[str, SavedTexts], tmp_path: Path
) -> None:
    """Without the list of spent values they would be taken for baselines again."""
    (tmp_path / "no folder").write_text("")
    spent = tmp_path / "no folder/spent.json"
    means = Means(tmp_path / "journal.json", tmp_path / "claims", spent, 1, 20.0)
    with pytest.raises(RollbackUnsavedError, match=r"spent\.json.* cannot be written"):
        restore_values(plan_rollback(machine(DISK), Journal("boot"), means), means)


def test_adopted_baseline_is_durable(database: dict[str, SavedTexts], tmp_path: Path) -> None:
    file = tmp_path / "journal.json"
    journal.save(file, with_udev_baselines(Journal("boot"), [DISK], tmp_path / "spent"))
    assert before(journal.load(file, "boot")[0])["queue_depth"] == 32
