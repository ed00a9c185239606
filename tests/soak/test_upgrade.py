"""An upgrade from the last release's package to this commit's, on a tuned host with a daemon.

Nothing is lost: values, original values, rollback records, history and configuration stay, and a
rollback by the new version is exact. A second upgrade, to a package with another rule, changes no
value until the next apply.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.fleet import FleetHost, fleet
from tests.lab.wheel import CHECKOUT
from tests.soak.kept import save_results
from tools import deb

BEFORE_FIRST_RELEASE = "593aa15f6ba486057e221931311de9a747a47da3"
"""The commit to upgrade from until there is a tag: the last one without names of volumes."""

_CONFIGURE = """
mkdir -p /etc/hbatune/rules.d
cat >/etc/hbatune/hbatune.toml <<end
[daemon]
audit_seconds = 5
probe = false
rollback_on_stop = true
end
for rule in 'scheduler "mq-deadline"' 'nr_requests 2048' 'rq_affinity 2'; do
    set -- $rule
    cat <<end
[[rule]]
name = "virtual-$1"
when = { protocol = ["virtio", "virtual"], kind = "disk" }
setting = "$1"
value = $2
because = "a test"
source = "site"
end
done >/etc/hbatune/rules.d/virtual.toml
"""
_LATER_RULE = """
[[rule]]
name = "virtual-nomerges"
when = { protocol = ["virtio", "virtual"], kind = "disk" }
setting = "nomerges"
value = 2
because = "a test"
source = "V-pure-rules"
"""
_LOAD = """
modprobe scsi_debug max_luns=3 num_tgts=1 max_queue=192 submit_queues=2
udevadm settle
for disk in /sys/bus/pseudo/drivers/scsi_debug/adapter*/host*/target*/*/block/*; do
    basename $disk
done | sort
"""
_VALUES = """
find -L /sys/block/sd*/queue /sys/block/nvme*/queue /sys/block/sd*/device/queue_depth \
    /sys/block/sd*/device/timeout -maxdepth 2 -type f -perm -200 -exec grep -H . {} + 2>/dev/null
grep -H . /proc/irq/*/smp_affinity_list
"""
_FILES = """
find /etc/hbatune /var/lib/hbatune/history* /var/lib/hbatune/rollbacks -type f \
    -exec sha256sum {} + | sort
"""
_JOURNAL = "cat /var/lib/hbatune/journal.json"
_DAEMON = "systemctl show --property=MainPID --value hbatune.service"
_UNTIL = "timeout 300 sh -c 'until {condition}; do sleep 1; done'"
_STATUS = "/usr/bin/hbatune status"  # exits with 1 for findings
_TUNED = f'{_STATUS} | grep -qE "is tuned( in part)?, with findings" || {_STATUS}'
_LEFT = """
find /etc /usr /var /run -xdev -name '*hbatune*' -not -path '/usr/local/*' \
    -not -path '/run/udev/*' -not -path '/var/log/*'
"""


def last_release() -> str:
    """Return the tag of the last release, without one the commit that stands in for it."""
    words = ["git", "-C", str(CHECKOUT), "describe", "--tags", "--abbrev=0", "--match=v*", "HEAD^"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else BEFORE_FIRST_RELEASE


def build_commit(commit: str, folder: Path) -> Path:
    """Build the Debian package of an earlier commit with that commit's own builder."""
    clone, built = folder / "clone", folder / "built"
    words = ["git", "clone", "--quiet", "--shared", "--no-checkout", str(CHECKOUT), str(clone)]
    subprocess.run(words, check=True)
    checked_out = subprocess.run(
        ["git", "-C", str(clone), "checkout", "--quiet", "--detach", commit],
        capture_output=True,
        check=False,
    )
    if checked_out.returncode != 0:
        pytest.skip(f"needs the history of git with the commit {commit}")
    # Its builder may need other Python packages than today's.
    python = clone / ".venv/bin/python"
    subprocess.run([sys.executable, "-m", "venv", str(clone / ".venv")], check=True)
    pip = [str(python), "-m", "pip", "--quiet", "install", "--editable", ".[build]"]
    without_path = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    for command in (pip, [str(python), "-m", "tools.deb", str(built)]):
        subprocess.run(command, cwd=clone, env=without_path, check=True)
    [package] = built.glob("hbatune_*.deb")
    return package


def add_later_rule(package: Path, folder: Path) -> Path:
    """Return a copy of a package with a higher version and one more rule in the profile oltp."""
    tree, later = folder / "tree", folder / "later.deb"
    subprocess.run(["dpkg-deb", "--raw-extract", str(package), str(tree)], check=True)
    control = tree / "DEBIAN/control"
    control.write_text(re.sub(r"(?m)^(Version: .*)$", r"\1+later", control.read_text()))
    [profile] = tree.rglob("rules/oltp.toml")
    profile.write_text(profile.read_text() + _LATER_RULE)
    words = ["dpkg-deb", "--root-owner-group", "--build", str(tree), str(later)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return later


class TunedHost:
    """A guest whose state is read with plain files; hbatune's command is the package's."""

    def __init__(self, host: FleetHost) -> None:
        self._host = host

    def run(self, command: str) -> str:
        """Run a shell command, which has to succeed, and return its output."""
        try:
            return self._host.ssh(command)
        except subprocess.CalledProcessError as error:
            raise AssertionError(f"{command}: {error.stdout}{error.stderr}") from error

    def hbatune(self, words: str) -> str:
        """Run the package's command, which has to succeed."""
        return self.run(f"/usr/bin/hbatune {words}")

    def until(self, condition: str) -> None:
        """Wait until a shell command succeeds."""
        self.run(_UNTIL.format(condition=condition))

    def install(self, package: Path) -> None:
        """Install a package from this machine."""
        self._host.put(package, f"/root/{package.name}")
        self.run(f"dpkg --install /root/{package.name}")

    def values(self) -> dict[str, str]:
        """Return all values that root may set; of a scheduler only the one in use."""
        values = {}
        for line in self.run(_VALUES).splitlines():
            path, _, text = line.partition(":")
            if path.endswith("/scheduler") and "[" in text:
                text = text.partition("[")[2].partition("]")[0]
            values[path] = text
        return values

    def original_values(self) -> dict[tuple[str, str], object]:
        """Return the original values in hbatune's journal, by id and setting."""
        entries = json.loads(self.run(_JOURNAL))["entries"]
        return {(entry["id"], entry["setting"]): entry["before"] for entry in entries}

    def count_rule_changes(self) -> int:
        """Return the number of settings that the rules of a new package would change."""
        count: int = json.loads(self.run(f"{_STATUS} --json || [ $? -eq 1 ]"))["rule_changes"]
        return count

    def daemon(self) -> int:
        """Return the daemon's process, or 0."""
        return int(self.run(_DAEMON))


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TunedHost]:
    with fleet(tmp_path_factory.mktemp("upgrade"), ["db1"]) as [only]:
        yield TunedHost(only)


def upgrade(host: TunedHost, package: Path) -> None:
    """Install a package, and wait until its daemon is done with its first pass."""
    daemon = host.daemon()
    host.install(package)
    assert host.daemon() not in (daemon, 0)
    host.until(f"journalctl _PID={host.daemon()} | grep -q ready:")
    host.until(_TUNED)


def test_upgrade_keeps_tuned_host(tmp_path: Path, host: TunedHost) -> None:
    former = build_commit(last_release(), tmp_path)
    package = deb.build(tmp_path / "new")
    left = host.run(_LEFT)
    host.install(former)
    host.run(_CONFIGURE)
    excluded, changed, *_ = host.run(_LOAD).split()
    before = host.values()
    host.hbatune("install --profile oltp")
    host.hbatune("apply --profile oltp --no-probe")
    host.hbatune(f"probe qd1 {changed} --runtime 1")
    host.hbatune(f"rollback {excluded}")
    host.until(_TUNED)
    tuned, files, originals = host.values(), host.run(_FILES), host.original_values()
    differing = [path for path, text in tuned.items() if before.get(path) != text]
    assert any(f"/{changed}/" in path for path in differing)
    assert not any(f"/{excluded}/" in path for path in differing)
    assert "history" in files
    assert "rollbacks" in files

    upgrade(host, package)
    assert host.values() == tuned
    assert (host.run(_FILES), host.original_values()) == (files, originals)
    host.hbatune("diff")

    path = f"/sys/block/{changed}/queue/rq_affinity"  # no other value depends on it
    host.run(f"echo 0 >{path}")
    host.until(f"grep -qx 2 {path}")
    host.hbatune("install --profile oltp")
    host.until(_TUNED)
    assert host.values() == tuned

    upgrade(host, add_later_rule(package, tmp_path))
    assert host.values() == tuned
    host.hbatune("diff")
    assert host.count_rule_changes() > 0
    host.run("/usr/bin/hbatune profiles --changes | grep -q nomerges")
    host.hbatune("apply --no-probe")
    by_later_rules = [path for path, text in host.values().items() if text != tuned[path]]
    assert f"/sys/block/{changed}/queue/nomerges" in by_later_rules
    assert all(path.endswith("/nomerges") for path in by_later_rules)
    assert host.count_rule_changes() == 0

    host.hbatune("rollback")
    assert host.values() == before
    host.run("DEBIAN_FRONTEND=noninteractive dpkg --purge hbatune")
    assert host.values() == before
    assert host.run(_LEFT) == left
    save_results(
        "an upgrade of the package on a tuned host with a running daemon: the values that hbatune "
        "had set, which stayed, and those that differ from the original values after the rollback",
        name="upgrade",
        former=former.name,
        package=package.name,
        changed_values=len(differing),
        lost_values=0,
        not_restored_values=0,
    )
