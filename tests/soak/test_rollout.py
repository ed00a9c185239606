"""Three guests over ssh: a check that changes nothing, a rollout, and one that gets worse."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.fleet import FleetHost, fleet
from tests.lab.wheel import CHECKOUT
from tests.soak.kept import save_results

NAMES = ("db1", "db2", "db3")
DEEP, CUT = 64, 4
SERVICE_NS = 2_000_000
MERGES = """
[[rule]]
name = "site-merges"
when = { vendor = "Linux" }
setting = "nomerges"
value = 1
because = "a test"
source = "site"
"""
SHALLOW = f"""
[[rule]]
name = "site-shallow"
when = {{ vendor = "Linux" }}
setting = "queue_depth"
value = {CUT}
because = "a test of what is worse"
source = "site"
"""
_LOAD = f"""
modprobe scsi_debug max_luns=1 delay=0 ndelay={SERVICE_NS} dev_size_mb=64
udevadm settle
disk=$(basename $(ls -d /sys/bus/pseudo/drivers/scsi_debug/adapter*/host*/target*/*/block/*))
echo {DEEP} >/sys/block/$disk/device/queue_depth
echo $disk
"""
_STATE = """
cd /sys/block/{disk}
grep . queue/nomerges queue/scheduler queue/nr_requests queue/read_ahead_kb device/queue_depth
find /etc/hbatune /var/lib/hbatune /run/hbatune /etc/udev/rules.d /etc/systemd -type f \
    -exec sha256sum {{}} + 2>/dev/null | sort
"""
_RECAP = re.compile(r"^(\w+) +: ok=\d+ +changed=(\d+) +unreachable=(\d+) +failed=(\d+)", re.M)


class Site:
    """The administrator's machine: an inventory and what Ansible says."""

    def __init__(self, folder: Path, hosts: list[FleetHost]) -> None:
        self.hosts = {host.name: host for host in hosts}
        self.disks = {host.name: host.ssh(_LOAD).strip() for host in hosts}
        self.seconds: dict[str, float] = {}
        self.said = ""
        self._folder = folder
        collections = folder / "collections" / "ansible_collections" / "hbatune"
        collections.mkdir(parents=True)
        (collections / "hbatune").symlink_to(CHECKOUT / "ansible")

    def play(
        self, name: str, *options: str, waves: list[Any], **variables: Any
    ) -> dict[str, tuple[int, int, int]]:
        """Run the rollout; return what changed, was unreachable and failed, by host."""
        inventory = self._folder / "inventory.json"
        inventory.write_text(json.dumps({"all": {"hosts": self._inventory(variables)}}))
        bin = Path(sys.executable).parent
        began = time.monotonic()
        done = subprocess.run(
            [
                *(str(bin / "ansible-playbook"), "hbatune.hbatune.rollout"),
                *("-i", str(inventory), "--diff", *options),
                *("-e", json.dumps({"hbatune_waves": waves})),
            ],
            capture_output=True,
            text=True,
            check=False,
            env={
                **os.environ,
                "ANSIBLE_COLLECTIONS_PATH": str(self._folder / "collections"),
                "ANSIBLE_PIPELINING": "1",
                "ANSIBLE_NOCOLOR": "1",
                "ANSIBLE_LOCALHOST_WARNING": "0",
                "LC_ALL": "C.UTF-8",
            },
        )
        self.seconds[name] = round(time.monotonic() - began, 1)
        self.said = done.stdout + done.stderr
        return {
            host: (int(changed), int(unreachable), int(failed))
            for host, changed, unreachable, failed in _RECAP.findall(done.stdout)
        }

    def states(self) -> dict[str, str]:
        """Return every host's values and files."""
        return {
            name: host.ssh(_STATE.format(disk=self.disks[name]))
            for name, host in self.hosts.items()
        }

    def active(self) -> dict[str, str | None]:
        """Return every host's active profile."""
        outputs = {name: host.ssh("hbatune profiles --json") for name, host in self.hosts.items()}
        return {name: json.loads(text)["active"] for name, text in outputs.items()}

    def value(self, host: str, file: str) -> str:
        """Return a value of a host's disk."""
        return self.hosts[host].ssh(f"cat /sys/block/{self.disks[host]}/{file}").strip()

    def _inventory(self, variables: dict[str, Any]) -> dict[str, dict[str, Any]]:
        return {
            name: {
                "ansible_host": "127.0.0.1",
                "ansible_port": host.port,
                "ansible_user": "root",
                "ansible_ssh_common_args": " ".join(host.options),
                "ansible_python_interpreter": "/usr/bin/python3",
                "hbatune_targets": [self.disks[name]],
                "hbatune_rules": {"site.toml": MERGES},
                **variables.get("every", {}),
                **variables.get(name, {}),
            }
            for name, host in self.hosts.items()
        }


def settled(state: str) -> list[str]:
    """Return the values and the configuration: what was measured stays, also in udev's rules."""
    return [line for line in state.splitlines() if " /" not in line or " /etc/hbatune/" in line]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("fleet")
    with fleet(folder, NAMES) as hosts:
        yield Site(folder, hosts)


def test_rollout_stops_at_worse_host(site: Site) -> None:
    every, waves = {"hbatune_profile": "oltp"}, [1, "100%"]
    before = site.states()

    site.play("check", "--check", waves=waves, every=every)
    assert site.states() == before, "check mode changes nothing"
    assert '+name = "site-merges"' in site.said, "diff mode shows the rules"
    assert "nr_requests: 2048" in site.said, "and each setting"

    done = site.play("rollout", waves=waves, every=every)
    assert done == {name: (done[name][0], 0, 0) for name in NAMES}, site.said
    assert site.said.count("PLAY [") == 2, "the canary, and all others at once"
    assert site.active() == dict.fromkeys(NAMES, "oltp")
    assert {site.value(name, "queue/nomerges") for name in NAMES} == {"1"}

    again = site.play("again", waves=waves, every=every)
    assert again == dict.fromkeys(NAMES, (0, 0, 0)), site.said

    # db1 is the canary and gets the other profile; db3 gets worse, and db2 is of its wave.
    former = site.states()
    worse = {"hbatune_rules": {"site.toml": MERGES, "worse.toml": SHALLOW}}
    every = {"hbatune_profile": "balanced"}
    done = site.play("worse", waves=waves, every=every, db3=worse)
    assert {name: failed for name, (_, _, failed) in done.items()} == dict(
        zip(NAMES, (0, 1, 1), strict=True)
    ), site.said
    assert "db3: profile balanced regressed on" in site.said
    assert site.active() == {"db1": "balanced", "db2": "oltp", "db3": "oltp"}
    returned = site.states()
    for name in ("db2", "db3"):
        assert settled(returned[name]) == settled(former[name])

    save_results(
        "three guests over ssh, emulated: a check, a rollout in two waves, the same again, and "
        "another profile, whose second wave has a host that gets worse; seconds of each",
        name="rollout",
        seconds=site.seconds,
    )
