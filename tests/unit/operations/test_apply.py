"""What commands and the daemon share: notes in words, and irqbalance's part where a write fails."""

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import NoReturn

import pytest
from msgspec.structs import replace

from hbatune.act import interrupts, journal
from hbatune.act.journal import JournalError
from hbatune.act.paths import Paths
from hbatune.agent import passes
from hbatune.agent.orders import Order, PassReason, PassReport, decode_report
from hbatune.cli.command_context import make_context
from hbatune.facts.model import Attribute
from hbatune.operations import situation
from hbatune.operations.apply import ApplyRequest, apply_profile
from hbatune.operations.autotune import AutotuneRequest, search_disks
from hbatune.operations.context import (
    Context,
    Note,
    Task,
    TaskFailed,
)
from hbatune.operations.rollback import roll_back_targets
from hbatune.plan.rows import Outcome, Plan, Row, State
from hbatune.policy.config import load_configuration
from hbatune.policy.vendors import load_chosen_profile
from tests.unit.command_runs import see_machine
from tests.unit.machines import endpoint, machine, vector
from tests.unit.site_folder import SiteFolder

PLACING = """
title = "interrupts alone"
[[rule]]
name = "placed"
setting = "irq_affinity"
value = "local"
because = "of this"
source = "site"
"""


@pytest.fixture
def placing(site: SiteFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with one interrupt that is not where the active profile wants it."""
    site.put("profiles/placing.toml", PLACING)
    site.put("hbatune.toml", 'profile = "placing"\n')
    interrupt = vector(irq=30, affinity=Attribute("4-5", True))
    host = machine(endpoint(), vectors=(interrupt,))
    see_machine(monkeypatch, lambda: host)
    monkeypatch.setattr(interrupts, "find_irqbalance", lambda: None)


def by_command() -> None:
    apply_profile(make_context(), ApplyRequest(probe=False))


def by_command_with_probes() -> None:
    apply_profile(make_context(), ApplyRequest())


def by_search() -> None:
    search_disks(make_context(), AutotuneRequest(targets=("sda",)))


@pytest.mark.parametrize(
    ("run", "has_block_size"),
    [(by_command, False), (by_command_with_probes, True), (by_search, True)],
)
def test_block_size_is_read_for_probes(
    placing: None, monkeypatch: pytest.MonkeyPatch, run: Callable[[], None], has_block_size: bool
) -> None:
    requested: list[str] = []

    def gather(files: Sequence[str], *_: object, **__: object) -> NoReturn:
        requested.extend(files)
        raise KeyboardInterrupt

    monkeypatch.setattr(situation, "gather_machine", gather)
    with pytest.raises(KeyboardInterrupt):
        run()
    assert requested.count("queue/logical_block_size") == has_block_size
    assert len(requested) == len(set(requested))


def by_daemon() -> None:
    pass_made()


def pass_made() -> PassReport:
    config = load_configuration()
    profile = load_chosen_profile(None, config)
    with closing(passes.Memory()) as memory:
        sent = passes.run(Order(PassReason.AUDIT), config, profile, memory)
    report = decode_report(sent)
    assert not report.locked
    return report


@pytest.mark.usefixtures("placing")
@pytest.mark.parametrize("caller", [by_command, by_daemon])
def test_failed_write_releases_reserved_interrupt(
    caller: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object, **kwargs: object) -> NoReturn:
        reserved.append(interrupts.read_placed(Paths()))
        raise JournalError("the journal cannot be written")

    reserved: list[frozenset[int]] = []
    monkeypatch.setattr(journal, "save", full)
    if caller is by_command:
        with pytest.raises(JournalError):
            caller()
    else:
        assert "cannot be written" in str(pass_made().error)
    assert reserved == [{30}]
    assert interrupts.read_placed(Paths()) == set()


@pytest.mark.usefixtures("placing")
def test_fixed_interrupt_is_no_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(machine: object, plan: Plan, *args: object, **kwargs: object) -> tuple[Row, ...]:
        return tuple(replace(row, state=State.FIXED, value=None) for row in plan.rows)

    monkeypatch.setattr("hbatune.operations.apply.write_plan", refused)
    report = pass_made()
    assert report.error is None
    assert report.changes == ()
    assert interrupts.read_placed(Paths()) == set()
    assert pass_made().changes == (), "it is remembered"


@pytest.mark.usefixtures("placing")
def test_unrecorded_interrupt_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refused(machine: object, plan: Plan, *args: object, **kwargs: object) -> tuple[Row, ...]:
        return tuple(replace(row, state=State.FIXED, value=None) for row in plan.rows)

    monkeypatch.setattr("hbatune.operations.apply.write_plan", refused)
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(Paths, "locked", tmp_path / "file/locked.json")
    error = pass_made().error
    assert error is not None
    assert "will show as drift again" in error


@pytest.mark.usefixtures("placing")
def test_rollback_notes_broken_configuration(site: SiteFolder) -> None:
    site.put("hbatune.toml", "[daemon\n")
    notes: list[Note] = []
    done = roll_back_targets(Context(lock=make_context().lock, note=notes.append))
    failed = [note.task for note in notes if isinstance(note, TaskFailed)]
    assert failed == [Task.READ_CONFIGURATION, Task.DEACTIVATE_PROFILE]
    assert not done.finished
    assert not done.complete
    assert all(row.outcome is not Outcome.REFUSED for row in done.rows)
    assert not Paths.journal.exists()
