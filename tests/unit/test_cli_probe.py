"""`probe` as a person sees it, with a machine and a fio that are made up."""

import json
from collections.abc import Sequence
from importlib import resources
from typing import Any

import jsonschema
import msgspec
import pytest

from hbatune.cli import main, probe
from hbatune.cli.probe import ProbeDocument
from hbatune.facts.model import Machine
from hbatune.probe import run as running
from hbatune.probe.model import Failed, Failure, Outcome, Result, Subject, Workload
from tests.unit.factory import endpoint, machine
from tests.unit.test_before_after import FIGURES

FILE = resources.files("hbatune") / "schemas" / "hbatune.probe-1.json"


def current() -> dict[str, Any]:
    found = msgspec.json.schema(ProbeDocument)
    found["$id"] = "hbatune.probe/1"
    told: dict[str, Any] = json.loads(json.dumps(found))  # where there are no tuples
    return told


class Bench:
    """A machine with one disk, and what its probes give; ``asked`` are the runs made."""

    def __init__(self) -> None:
        self.asked: list[Workload] = []
        self.fails = False

    def gather(self, attributes: Sequence[str]) -> Machine:
        return machine(endpoint())

    def probe(self, subjects: Sequence[Subject], asked: Workload) -> list[Outcome]:
        self.asked.append(asked)
        [subject] = subjects
        if self.fails:
            return [Failed(subject.target, Failure.STUCK)]
        figures = msgspec.structs.replace(FIGURES, mean_us=asked.issued / FIGURES.iops * 1e6)
        return [Result(subject.target, "id", asked, figures, "3.33", ())]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Put the made-up machine in the place of this one."""
    made = Bench()
    monkeypatch.setattr(probe, "gather", made.gather)
    monkeypatch.setattr(running, "probe", made.probe)
    return made


def test_the_shipped_schema_is_that_of_the_code() -> None:
    # To bring it up to date after a change: python -m tests.unit.test_cli_probe
    assert json.loads(FILE.read_text()) == current()


def test_without_arguments_the_workloads_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe"]) == 0
    out = capsys.readouterr().out
    assert "depth-sweep" in out
    assert "D0-11" in out


def test_a_sweep_is_run_in_order_and_said_ahead(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["probe", "depth-sweep", "sda", "--json", "--runtime", "1"]) == 0
    said = capsys.readouterr()
    found = json.loads(said.out)
    jsonschema.validate(found, current())
    assert [each.depth for each in bench.asked] == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert {each.runtime for each in bench.asked} == {1.0}
    assert {each["doubt"] for each in found["runs"]} == {None}
    assert "9 runs, which take about" in said.err


def test_a_disk_that_does_not_answer_is_not_asked_again(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.fails = True
    assert main(["probe", "depth-sweep", "sda"]) == 1
    assert len(bench.asked) == 1
    assert "does not answer" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["no-such", "sda"],
        ["qd1"],
        ["qd1", "sdzz"],
        ["qd1", "sda", "--runtime", "0"],
        ["qd1", "sda", "--runtime", "nan"],
        ["qd1", "sda", "--runtime", "601"],
    ],
)
def test_bad_usage_is_2_and_probes_nothing(bench: Bench, words: list[str]) -> None:
    assert main(["probe", *words]) == 2
    assert bench.asked == []


@pytest.mark.parametrize(("share", "doubt"), [(1.04, None), (1.06, "too_many"), (0.89, "too_few")])
def test_figures_that_break_littles_law_are_doubted(share: float, doubt: str | None) -> None:
    asked = Workload(depth=24)
    figures = msgspec.structs.replace(FIGURES, mean_us=share * 24 / FIGURES.iops * 1e6)
    assert Result("sda", "id", asked, figures, "3.33", ()).doubt == doubt


if __name__ == "__main__":
    from pathlib import Path

    Path(str(FILE)).write_text(json.dumps(current(), indent=1) + "\n")
