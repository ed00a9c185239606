"""What events mean, when a fight is given up, and what a configuration is worth."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbatune.agent import probes, work
from hbatune.agent.configuration import LastGoodConfiguration, Policy
from hbatune.agent.events import DeviceEvent, interpret_event
from hbatune.agent.orders import NewEndpointProbe, Order, PassReason, encode
from hbatune.agent.probes import HOUR_S, EndpointProbes
from hbatune.agent.schedule import MAX_REPAIRS, REPAIR_WINDOW_S, Repairs
from hbatune.errors import UsageError
from hbatune.policy.config import Config, DaemonConfig
from hbatune.settings.table import Cause
from tests.unit.test_plan import profile

SCSI = "/devices/pci0000:00/0000:00:05.0/host2/target2:0:0/2:0:0:0/block/sda"
HEAD = "/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1"
LOOP, MAP = "/devices/virtual/block/loop0", "/devices/virtual/block/dm-0"
ACTIVATED = {"DEVTYPE": "disk", "DEVPATH": MAP, "DM_ACTIVATION": "1"}

KEY = ("id-sda", "scheduler")


UNMARKED, LOOK, RESET, BOUND, TABLE, HOST_RESET = (
    DeviceEvent("x", unmarked=True),
    DeviceEvent("x"),
    DeviceEvent("x", Cause.CONNECTED),
    DeviceEvent("x", Cause.BOUND),
    DeviceEvent("x", Cause.LOADED),
    DeviceEvent("host2", Cause.RESET),
)


@pytest.mark.parametrize(
    ("action", "subsystem", "properties", "meant"),
    [
        ("add", "block", {"DEVTYPE": "disk"}, UNMARKED),
        ("add", "block", {"DEVTYPE": "disk", "HBATUNE_SEEN": "7"}, LOOK),
        ("add", "block", {"DEVTYPE": "partition"}, None),
        ("change", "block", {"DEVTYPE": "disk"}, None),
        ("remove", "block", {"DEVTYPE": "disk"}, None),
        ("add", "block", {"DEVTYPE": "disk", "DEVPATH": SCSI}, UNMARKED),
        ("add", "block", {"DEVTYPE": "disk", "DEVPATH": HEAD}, UNMARKED),
        ("add", "block", {"DEVTYPE": "disk", "DEVPATH": LOOP}, None),
        ("add", "block", {"DEVTYPE": "disk", "DEVPATH": MAP}, None),
        ("add", "block", {**ACTIVATED, "DM_UUID": "mpath-36000"}, UNMARKED),
        ("change", "block", {**ACTIVATED, "DM_UUID": "mpath-36000"}, TABLE),
        (
            "change",
            "block",
            {**ACTIVATED, "DM_UUID": "mpath-36000", "DM_ACTION": "PATH_REINSTATED"},
            LOOK,
        ),
        ("change", "block", {**ACTIVATED, "DM_UUID": "LVM-0"}, None),
        ("change", "block", {**ACTIVATED, "DM_UUID": "mpath-36000", "DM_ACTIVATION": "0"}, None),
        ("change", "nvme", {"NVME_EVENT": "connected"}, RESET),
        ("change", "nvme", {"NVME_EVENT": "rediscover"}, None),
        ("add", "nvme", {}, None),
        ("bind", "pci", {"PCI_CLASS": "10802"}, BOUND),
        ("bind", "pci", {"PCI_CLASS": "C0400"}, BOUND),
        ("bind", "pci", {"PCI_CLASS": "20000"}, None),
        ("bind", "pci", {"PCI_CLASS": "nonsense"}, None),
        ("bind", "pci", {}, None),
        ("unbind", "pci", {"PCI_CLASS": "10802"}, None),
        ("change", "scsi", {"SDEV_UA": "POWER_ON_RESET_OCCURRED"}, HOST_RESET),
        ("change", "scsi", {"SDEV_UA": "INQUIRY_DATA_HAS_CHANGED"}, None),
        ("change", "scsi", {}, None),
        ("add", "scsi", {}, None),
    ],
)
def test_events_name_target_and_cause(
    action: str, subsystem: str, properties: dict[str, str], meant: DeviceEvent | None
) -> None:
    name = "2:0:5:0" if subsystem == "scsi" else "x"
    assert interpret_event(action, subsystem, name, properties) == meant


def test_one_event_marks_disk() -> None:
    events = (
        *(DeviceEvent("sda", unmarked=True), DeviceEvent("sdb", unmarked=True)),
        *(DeviceEvent("sda"), DeviceEvent("sdc")),
    )
    assert Order(PassReason.EVENT, events).unmarked == {"sdb"}


def test_third_drift_exhausts_repairs() -> None:
    damping = Repairs()
    for now in (0.0, 100.0):
        assert damping.find_exhausted(now) == frozenset()
        damping.add([KEY], now)
    assert damping.find_exhausted(200.0) == {KEY}


def test_rare_drift_stays_repairable() -> None:
    damping = Repairs()
    for number in range(20):
        now = number * REPAIR_WINDOW_S
        assert damping.find_exhausted(now) == frozenset()
        damping.add([KEY], now)
    assert len(damping.times[KEY]) <= MAX_REPAIRS, "what is long ago is forgotten"


def test_default_audits_exhaust_repairs() -> None:
    audit = Config().daemon.audit_seconds
    damping = Repairs(audit)
    for number in (1, 2):
        damping.add([KEY], number * (audit + 1.0))
    assert damping.find_exhausted(3 * (audit + 1.0)) == {KEY}


def test_permission_change_reloads_configuration(tmp_path: Path) -> None:
    site = Site(tmp_path)
    last_good = LastGoodConfiguration(tmp_path, site.load)
    site.file.write_text("another")
    os.utime(site.file, ns=(1, 1))
    last_good.refresh()
    calls: list[str] = []
    last_good._load = lambda: calls.append("read") or site.load()  # type: ignore[func-returns-value]
    site.file.chmod(0o600)
    last_good.refresh()
    assert calls == ["read"]
    last_good.refresh(force=True)
    assert calls == ["read", "read"]


@given(st.lists(st.floats(0, 5000), max_size=60))
def test_repairs_per_window_are_limited(times: list[float]) -> None:
    damping, done = Repairs(), list[float]()
    for now in sorted(times):
        if KEY not in damping.find_exhausted(now):
            damping.add([KEY], now)
            done.append(now)
    for now in done:
        assert sum(now <= other < now + REPAIR_WINDOW_S for other in done) <= MAX_REPAIRS


class Measurement:
    """A process whose probe has taken so many seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def read(self) -> bytes:
        return encode(NewEndpointProbe(1, self.seconds))

    def kill(self) -> None:
        """Do nothing."""


def test_probe_budget_renews_hourly(monkeypatch: pytest.MonkeyPatch) -> None:
    budgets: list[float] = []
    endpoint_probes, config = EndpointProbes(), Config(daemon=DaemonConfig(probe_seconds=60))
    monkeypatch.setattr(work, "probe_endpoints", lambda *given: budgets.append(given[-1]))
    for now, seconds in ((0.0, 20.0), (HOUR_S / 2, 30.0), (HOUR_S / 2, 0.0), (HOUR_S + 1, 0.0)):

        def start(serve: Callable[[bytes], bytes], seconds: float = seconds) -> Measurement:
            serve(b"start")
            return Measurement(seconds)

        monkeypatch.setattr(probes, "start_server", start)
        endpoint_probes.add([f"id {len(budgets)}"])
        assert endpoint_probes.start(config, profile(), now, 900.0) is None
        assert endpoint_probes.receive(now, ready=True) is not None
    assert budgets == [60.0, 40.0, 10.0, 30.0]


class Site:
    """A folder of configuration, and what reading it gives."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "hbatune.toml"
        self.file.write_text("one")

    def load(self) -> Policy:
        text = self.file.read_text()
        if text == "nonsense":
            raise UsageError("it makes no sense")
        return Policy(Config(profile=text), None)


def test_mistake_keeps_last_configuration(tmp_path: Path) -> None:
    site = Site(tmp_path)
    last_good = LastGoodConfiguration(tmp_path, site.load)
    assert not last_good.refresh()
    site.file.write_text("nonsense")
    assert not last_good.refresh()
    assert (last_good.policy.config.profile, str(last_good.mistake)) == ("one", "it makes no sense")
    site.file.write_text("another")
    assert last_good.refresh()
    assert (last_good.policy.config.profile, last_good.mistake) == ("another", None)


def test_unchanged_configuration_is_ignored(tmp_path: Path) -> None:
    site = Site(tmp_path)
    last_good = LastGoodConfiguration(tmp_path, site.load)
    (tmp_path / "rules.d").mkdir()
    (tmp_path / "rules.d" / "mine.toml").write_text("x")
    assert not last_good.refresh(), "what it says is the same"
    os.utime(site.file, ns=(1, 1))
    assert not last_good.refresh()


def test_bad_first_configuration_fails(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.file.write_text("nonsense")
    with pytest.raises(UsageError):
        LastGoodConfiguration(tmp_path, site.load)
