"""A block device as a directory of plain files, its plan and its journal."""

import os
from pathlib import Path

from hbatune.act import journal
from hbatune.act.chain import Chain, Step
from hbatune.act.executor import Means
from hbatune.act.journal import Journal
from hbatune.facts.model import Attribute, Endpoint, Machine, Missing
from hbatune.plan.make import EarlierChanges, make_plan
from hbatune.plan.rows import Outcome, Plan, Row
from hbatune.policy.profile import Exactly
from tests.unit.machines import endpoint, machine
from tests.unit.profiles import profile

NOMERGES = ("nomerges", Exactly(1))


AFFINITY = ("rq_affinity", Exactly(2))


SDA = "id-sda@0000:01:00.0/sda"


class Disk:
    """A block device's directory of plain files."""

    def __init__(self, top: Path, name: str, **files: str) -> None:
        self.name = name
        self.path = top / name
        (self.path / "queue/iosched").mkdir(parents=True)
        (self.path / "device").mkdir()
        values = {"queue/nomerges": "0", "queue/rq_affinity": "1"}
        values |= {path.replace("__", "/"): text for path, text in files.items()}
        for path, text in values.items():
            (self.path / path).parent.mkdir(parents=True, exist_ok=True)
            (self.path / path).write_text(text)

    def value(self, path: str) -> str:
        return (self.path / path).read_text()

    def endpoint(self, adapter: str = "0000:01:00.0", map: str | None = None) -> Endpoint:
        values: dict[str, Attribute | Missing] = {}
        for file in sorted(self.path.rglob("*")):
            if file.is_file():
                values[str(file.relative_to(self.path))] = Attribute(file.read_text(), True)
        return endpoint(
            target=self.name,
            id=f"id-{self.name}@0000:01:00.0/{self.name}",
            sysfs=str(self.path),
            attributes=values,
            adapter=adapter,
            map=map,
        )


def planned(host: Machine, *effects: tuple[str, Exactly]) -> Plan:
    """Plan the effects on targets that a person named: a low depth is nobody's decision."""
    return make_plan(host, profile(*effects), earlier=EarlierChanges(targets_named=True))


def filed(means: Means) -> Journal:
    return journal.load(means.journal, machine().boot_id)[0]


def by_setting(rows: tuple[Row, ...]) -> dict[str, Outcome | None]:
    return {row.setting: row.outcome for row in rows}


def chains(tmp_path: Path, hung: int, fine: int, map: str | None = None) -> list[Chain]:
    disk_chains = []
    for number in range(hung + fine):
        folder = tmp_path / f"disk{number}"
        folder.mkdir()
        if number < hung:
            os.mkfifo(folder / "gate")
        name = f"sd{number}"
        step = Step("nomerges", 1, 0)
        disk_chains.append(Chain(name, name, "adapter", map, str(folder), (step,)))
    return disk_chains
