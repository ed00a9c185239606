"""Coalescing of NVMe controllers, behind a fake of the one door to their admin queues."""

import array
import errno
import os
import struct
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hbatune import nvme
from hbatune.act import journal
from hbatune.act.executor import Means
from hbatune.act.restore import plan_rollback, restore_values
from hbatune.act.writer import write_plan
from hbatune.facts.attributes import read_attributes
from hbatune.facts.model import Attribute, Control, Machine, Missing, Reason
from hbatune.nvme import Answer
from hbatune.plan.make import make_plan
from hbatune.plan.rows import Outcome, Row, State
from hbatune.policy.profile import Exactly
from hbatune.text.limit_text import describe_limit
from tests.unit.machines import adapter, control, machine
from tests.unit.profiles import profile

COALESCING = 0x08
NOT_CHANGEABLE = 0x10E
DO_NOT_RETRY = 0x4000
SAVE = 1 << 31
CHANGEABLE = 0b100
SELECTS = 1 << 4


@dataclass
class FakeController:
    """An admin queue; its features are files, so that workers and tests see the same."""

    store: Path
    changeable: bool = True
    selects: bool = True
    status: int = 0
    errno: int = 0
    ignores: bool = False
    sent: list[tuple[int, int, int]] = field(default_factory=list)

    def submit(
        self,
        path: str,
        opcode: int,
        *,
        cdw10: int,
        cdw11: int = 0,
        data: "array.array[int] | None" = None,
    ) -> Answer:
        self.sent.append((opcode, cdw10, cdw11))
        assert path == "/dev/nvme0"
        assert not cdw10 & SAVE
        if self.errno:
            raise OSError(self.errno, os.strerror(self.errno))
        if opcode == nvme.IDENTIFY:
            assert data is not None
            data[520:522] = array.array("B", struct.pack("<H", SELECTS if self.selects else 0))
            return Answer(0)
        if self.status:
            return Answer(self.status)
        if opcode == nvme.GET_FEATURES:
            select = cdw10 >> 8 if self.selects else 0
            return Answer(0, CHANGEABLE * self.changeable if select == 3 else self.value)
        assert opcode == nvme.SET_FEATURES
        if not self.changeable:
            return Answer(NOT_CHANGEABLE | DO_NOT_RETRY)
        if not self.ignores:
            self.store.write_text(str(cdw11))
        return Answer(0)

    @property
    def value(self) -> int:
        return int(self.store.read_text())

    def reset(self) -> None:
        """Forget what was not saved, as every controller does."""
        self.store.write_text("0")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    device = tmp_path / "nvme0"
    device.mkdir()
    (device / "dev").write_text("240:0\n")
    (device / "state").write_text("live\n")
    return device


@pytest.fixture
def door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeController:
    fake = FakeController(tmp_path / "feature")
    fake.reset()
    monkeypatch.setattr(nvme, "submit", fake.submit)
    monkeypatch.setattr(nvme, "find_node", lambda name, number: f"/dev/{name}")
    return fake


@pytest.fixture
def means(tmp_path: Path) -> Means:
    return Means(
        tmp_path / "state/journal.json",
        tmp_path / "writers",
        tmp_path / "spent.json",
        workers=1,
        deadline=20.0,
    )


def read_coalescing(directory: Path) -> Attribute | Missing:
    return read_attributes(str(directory), ("feature/08",))["feature/08"]


def host(directory: Path) -> Machine:
    controller: Control = control(
        sysfs=str(directory), attributes={"feature/08": read_coalescing(directory)}
    )
    return machine(adapters=(adapter(family="nvme", controller="nvme0"),), controls=(controller,))


def done(directory: Path, means: Means, value: int | str) -> Row:
    server = host(directory)
    filed = journal.load(means.journal, server.boot_id)[0]
    [row] = write_plan(
        server, make_plan(server, profile(("coalescing", Exactly(value)))), filed, means
    )
    return row


def test_feature_reports_value_and_changeability(door: FakeController, directory: Path) -> None:
    door.store.write_text(str(0x0207))
    assert read_coalescing(directory) == Attribute("519", True)
    door.changeable = False
    assert read_coalescing(directory) == Attribute("519", False)


def test_selectless_controller_appears_changeable(door: FakeController, directory: Path) -> None:
    door.selects, door.changeable = False, False
    assert read_coalescing(directory) == Attribute("0", True)


@pytest.mark.parametrize("state", ["resetting", "connecting", "dead"])
def test_dead_controller_is_skipped(door: FakeController, directory: Path, state: str) -> None:
    (directory / "state").write_text(state)
    assert read_coalescing(directory) == Missing(Reason.UNREADABLE, text=f"device state is {state}")
    assert not door.sent


@pytest.mark.parametrize(
    ("trouble", "missing"),
    [
        (
            {"errno": errno.EACCES},
            Missing(Reason.UNREADABLE, errno.EACCES, "only root can query the controller"),
        ),
        ({"errno": errno.ENODEV}, Missing(Reason.ABSENT, errno.ENODEV)),
        ({"status": 0x4002}, Reason.ABSENT),
        ({"status": 0x0006}, Reason.UNREADABLE),
    ],
)
def test_unreadable_feature_reports_reason(
    door: FakeController, directory: Path, trouble: dict[str, int], missing: Missing | Reason
) -> None:
    for name, value in trouble.items():
        setattr(door, name, value)
    answer = read_coalescing(directory)
    assert isinstance(answer, Missing)
    if isinstance(missing, Missing):
        assert answer == missing
    else:
        assert answer.reason is missing
        assert f"{trouble['status'] & 0x7FF:#05x}" in (answer.text or "")


def test_coalescing_set_and_rollback(door: FakeController, directory: Path, means: Means) -> None:
    door.store.write_text(str(0x0207))
    row = done(directory, means, 0)
    assert (row.current, row.outcome) == ("8/200", Outcome.WRITTEN)
    assert door.value == 0
    server = host(directory)
    filed = journal.load(means.journal, server.boot_id)[0]
    [restored] = restore_values(plan_rollback(server, filed, means), means)
    assert (restored.before, restored.outcome) == ("8/200", Outcome.WRITTEN)
    assert door.value == 0x0207
    assert not means.journal.exists()


def test_disabled_coalescing_stays(door: FakeController, directory: Path, means: Means) -> None:
    door.store.write_text(str(0x0007))  # a threshold without a time
    assert done(directory, means, 0).outcome is Outcome.KEPT
    assert door.value == 0x0007


def test_apply_restores_coalescing_after_reset(
    door: FakeController, directory: Path, means: Means
) -> None:
    assert done(directory, means, "8/200").outcome is Outcome.WRITTEN
    door.reset()
    [row] = make_plan(host(directory), profile(("coalescing", Exactly("8/200")))).rows
    assert (row.state, row.current) == (State.DRIFT, 0)
    assert done(directory, means, "8/200").outcome is Outcome.WRITTEN
    assert door.value == 0x0207
    server = host(directory)
    [back] = restore_values(
        plan_rollback(server, journal.load(means.journal, server.boot_id)[0], means), means
    )
    assert back.before == 0, "the first baseline is the baseline"


def test_unchangeable_feature_is_fixed(door: FakeController, directory: Path, means: Means) -> None:
    door.changeable = False
    row = done(directory, means, "8/200")
    assert (row.state, row.outcome) == (State.FIXED, None)
    assert all(opcode != nvme.SET_FEATURES for opcode, _, _ in door.sent)


@pytest.mark.parametrize(
    ("trouble", "outcome", "words"),
    [
        ({"selects": False, "changeable": False}, Outcome.REFUSED, "0x10e"),
        ({"ignores": True}, Outcome.IGNORED, ""),
    ],
)
def test_refusal_quotes_controller_status(
    door: FakeController,
    directory: Path,
    means: Means,
    trouble: dict[str, bool],
    outcome: Outcome,
    words: str,
) -> None:
    for name, value in trouble.items():
        setattr(door, name, value)
    row = done(directory, means, "8/200")
    assert (row.outcome, row.errno, row.found) == (outcome, None, 0)
    assert words in describe_limit(row.limit)


def test_node_must_match_device_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    null = os.stat("/dev/null").st_rdev
    assert nvme.find_node("null", f"{os.major(null)}:{os.minor(null)}") == "/dev/null"
    with pytest.raises(FileNotFoundError):
        nvme.find_node("null", "240:0")
    with pytest.raises(FileNotFoundError):
        nvme.find_node("nonesuch", "240:0")


def test_status_text_includes_number() -> None:
    assert "does not let this feature be changed" in Answer(0x410E).said
    assert "0x10e" in Answer(0x410E).said
    assert "refused (status 0x006)" in Answer(0x4006).said


def test_ioctl_command_matches_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, bytes]] = []

    def ioctl(descriptor: int, number: int, command: bytearray, mutate: bool) -> int:
        calls.append((number, bytes(command)))
        command[68:72] = (0x0207).to_bytes(4, "little")
        return 0

    monkeypatch.setattr("hbatune.nvme.fcntl.ioctl", ioctl)
    answer = nvme.submit("/dev/null", nvme.SET_FEATURES, cdw10=COALESCING, cdw11=0x0207)
    assert answer == Answer(0, 0x0207)
    [(number, command)] = calls
    assert (number, len(command)) == (0xC0484E41, 72)
    assert command[0] == 0x09
    assert struct.unpack_from("=II", command, 40) == (COALESCING, 0x0207)
    assert not any(command[1:40])


@dataclass
class FakeVectors:
    """An admin queue whose vectors are exempt or not, one character each, in a file."""

    store: Path
    changeable: bool = True
    sent: list[tuple[int, int]] = field(default_factory=list)

    def submit(
        self,
        path: str,
        opcode: int,
        *,
        cdw10: int,
        cdw11: int = 0,
        data: "array.array[int] | None" = None,
    ) -> Answer:
        vector, exempt = cdw11 & 0xFFFF, bool(cdw11 & 1 << 16)
        states = self.store.read_text()
        if opcode == nvme.IDENTIFY:
            assert data is not None
            data[520:522] = array.array("B", struct.pack("<H", SELECTS))
            return Answer(0)
        assert cdw10 & 0xFF == 0x09
        if cdw10 >> 8 == 3:
            return Answer(0, CHANGEABLE * self.changeable)
        if vector >= len(states):
            return Answer(nvme.INVALID_FIELD | DO_NOT_RETRY)
        if opcode == nvme.SET_FEATURES:
            changed = states[:vector] + "-x"[exempt] + states[vector + 1 :]
            self.store.write_text(changed)
        return Answer(0, vector | (states[vector] == "x") << 16)


@pytest.fixture
def exempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeVectors:
    fake = FakeVectors(tmp_path / "vectors")
    fake.store.write_text("x----")
    monkeypatch.setattr(nvme, "submit", fake.submit)
    monkeypatch.setattr(nvme, "find_node", lambda name, number: f"/dev/{name}")
    return fake


def exempting(directory: Path, means: Means, value: str) -> Row:
    name = "feature/09"
    read_now = read_attributes(str(directory), (name,))
    controller: Control = control(sysfs=str(directory), attributes=read_now)
    server = machine(adapters=(adapter(family="nvme", controller="nvme0"),), controls=(controller,))
    wanted = profile(("coalescing_exempt", Exactly(value)))
    filed = journal.load(means.journal, server.boot_id)[0]
    [row] = write_plan(server, make_plan(server, wanted), filed, means)
    return row


@pytest.mark.parametrize(("value", "after"), [("0,2-3", "x-xx-"), ("none", "-----")])
def test_vector_exemption_set_and_rollback(
    exempt: FakeVectors, directory: Path, means: Means, value: str, after: str
) -> None:
    row = exempting(directory, means, value)
    assert (row.current, row.value, row.outcome) == ("0", value, Outcome.WRITTEN)
    assert exempt.store.read_text() == after
    controller = control(
        sysfs=str(directory), attributes=read_attributes(str(directory), ("feature/09",))
    )
    server = machine(adapters=(adapter(family="nvme", controller="nvme0"),), controls=(controller,))
    [back] = restore_values(
        plan_rollback(server, journal.load(means.journal, server.boot_id)[0], means), means
    )
    assert back.outcome is Outcome.WRITTEN
    assert exempt.store.read_text() == "x----"


def test_missing_vector_refuses_every_exemption(
    exempt: FakeVectors, directory: Path, means: Means
) -> None:
    row = exempting(directory, means, "1,9")
    assert row.outcome is Outcome.REFUSED
    assert "no interrupt vector 9" in describe_limit(row.limit)
    assert exempt.store.read_text() == "x----"


def test_unchangeable_vectors_are_fixed(exempt: FakeVectors, directory: Path, means: Means) -> None:
    exempt.changeable = False
    assert exempting(directory, means, "none").state is State.FIXED
    assert exempt.store.read_text() == "x----"
