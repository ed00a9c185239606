"""The container image under podman, on a described machine as its host.

The host is a private mount namespace (``tests.hosts.namespace``): its /sys, /proc/irq, /run and
/var/lib are the described machine's, and its /dev has no disk. So a privileged container reaches
none of this machine's devices. The commands are from docs/install.md.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hosts import hbas, interrupts
from tests.hosts.namespace import run
from tests.hosts.tree import Described, build
from tests.lab.wheel import CHECKOUT
from tests.soak.kept import save_results
from tests.unit.docs.test_containers import podman_options
from tools import deb, oci

# Podman's own files stay outside of the host's /run and /var/lib. Limits lower than this machine's
# need no capability.
_PODMAN = """
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
pids_limit = 0
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
runtime = "crun"
"""
_HOST = r"""
mount --make-rshared /
chmod 755 /run
mkdir -p /run/dev /run/udev /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs /run/dev
for device in null zero full random urandom tty ptmx; do
    touch /run/dev/$device
    mount --bind /dev/$device /run/dev/$device
done
mkdir /run/dev/pts /run/dev/shm
mount --bind /dev/pts /run/dev/pts
mount -t tmpfs tmpfs /run/dev/shm
ln -s /proc/self/fd /run/dev/fd
mount --rbind /run/dev /dev
"""
_OWN_FILES = r"find /run /var/lib -xdev -path '*hbatune*' | sort"
_LOCK = """
import os, subprocess, sys
from hbatune.act.paths import Paths
from hbatune.act.lock import Lock
with Lock(Paths.lock, spare=Paths.lock_spare):
    print(os.getpid(), flush=True)
    subprocess.run(["sh", "-c", sys.argv[1]])
"""


class Host:
    """A described machine with podman, and with the image if it was loaded."""

    def __init__(self, machine: Path, storage: Path, image: str) -> None:
        self._machine = machine
        self._storage = storage
        reader, host = (" ".join(podman_options(name)) for name in ("reader", "host"))
        # A described machine has its own /proc/irq. On a real host, it is the kernel's.
        self.variables = f"""
export CONTAINERS_CONF={storage}/containers.conf
podman() {{ command podman --root {storage}/root --runroot {storage}/run "$@"; }}
image={image}
reader='{reader} -v /proc/irq:/proc/irq:ro'
host='{host} -v /proc/irq:/proc/irq'
wait_until_ready() {{
    for try in {{1..600}}; do
        podman logs hbatune 2>&1 | grep -q '^ready' && return
        sleep 0.2
    done
}}
closed=${{host/"/sys:/sys"/"/sys:/sys:ro"}}
uncounted=--cgroups=disabled  # a cgroup that admits only some devices needs a capability more
"""

    def bash(self, script: str) -> list[str]:
        """Run a script on the host as root and return the lines that it prints."""
        words = (_HOST, self.variables, script, "podman rm --all --force >/dev/null")
        output = run(self._machine, ["bash", "-c", "\n".join(words)], timeout=600)
        return output.decode().splitlines()


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of podman's images, with its configuration."""
    folder = tmp_path_factory.mktemp("podman")
    (folder / "containers.conf").write_text(_PODMAN)
    return folder


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The image, as `make oci` builds it."""
    folder = tmp_path_factory.mktemp("dist")
    deb.build(folder)
    return oci.build(folder)


@pytest.fixture
def make_host(storage: Path, archive: Path, tmp_path: Path) -> Callable[[Described], Host]:
    """A function that makes the host of a description, on which the image is loaded."""
    name = f"localhost/hbatune:{oci.tag()}"

    def make(described: Described) -> Host:
        build(described, tmp_path)
        host = Host(tmp_path, storage, name)
        assert host.bash(f"podman load -q -i {archive}") == [f"Loaded image: {name}"]
        return host

    return make


def test_unprivileged_container_reads_what_the_host_does(
    make_host: Callable[[Described], Host],
) -> None:
    host = make_host(hbas.mpt3sas())
    native = f"PYTHONPATH={CHECKOUT} {sys.executable} -m hbatune"
    contained = "podman run --rm $uncounted $reader $image"
    for command in ("list", "diff --profile oltp"):
        outputs = [host.bash(f"{way} {command} --json || true") for way in (native, contained)]
        documents = [json.loads("\n".join(lines)) for lines in outputs]
        assert documents[0] == documents[1], command

    # Another user reads the same, except files that only root can read.
    contained = contained.replace("--rm", "--rm --user 65534")
    assert host.bash(f"{contained} check >/dev/null; echo $?") == ["1"]
    [line] = host.bash(f"{contained} status | head -1")
    assert line.endswith(" is not set up: no profile is active")
    script = f"""
mkdir -m 777 /run/out
podman run --rm --user 65534 $uncounted $reader -v /run/out:/out $image \
    snapshot /out/db1.snap >/dev/null
{native} list --snapshot /run/out/db1.snap >/run/there
{contained} list >/run/here
diff /run/there /run/here && echo same
"""
    assert host.bash(script)[-1] == "same"
    assert host.bash(_OWN_FILES) == []


def test_read_only_sys_refuses_changes(make_host: Callable[[Described], Host]) -> None:
    host = make_host(hbas.mpt3sas())
    script = f"""
mkdir -p -m 711 /run/hbatune /var/lib/hbatune
podman run --rm $closed $image apply --profile oltp --no-probe 2>&1; echo $?
podman run --detach --name hbatune $closed -e HBATUNE_CONFIG='profile = "oltp"' $image daemon \
    >/dev/null
wait_until_ready
podman logs hbatune 2>&1 | grep '^the pass failed'
podman rm --force --time 150 hbatune >/dev/null
{_OWN_FILES} | grep journal || true
"""
    refusal = "/sys is mounted read-only, so no setting can be written; nothing was changed"
    hint = "many containers mount it so: run a privileged one with the host's /sys"
    assert host.bash(script) == [
        f"hbatune: {refusal}",
        f"         {hint}",
        "2",
        f"the pass failed: {refusal} ({hint})",
    ]


def test_host_and_container_share_one_lock(make_host: Callable[[Described], Host]) -> None:
    host = make_host(interrupts.two_nodes())
    script = f"""
mkdir -p -m 711 /run/hbatune /var/lib/hbatune
cat >/run/contained <<'END'
{host.variables}
podman run --rm $host $image apply --profile oltp --no-probe --once irq50 2>&1; echo $?
END
PYTHONPATH={CHECKOUT} {sys.executable} -c '{_LOCK}' 'bash /run/contained'
podman run --rm $host --entrypoint stat $image --format %d:%i /run/hbatune/lock
stat --format %d:%i /run/hbatune/lock
"""
    pid, refusal, code, contained, native = host.bash(script)
    assert refusal.startswith(f"hbatune: another hbatune (process {pid}: ")
    assert code == "3"
    assert contained == native


def test_removed_container_leaves_what_its_page_says(
    make_host: Callable[[Described], Host], archive: Path
) -> None:
    host = make_host(interrupts.two_nodes())
    # A described disk is a few plain files: a shorter number does not replace a longer one.
    begin = """
mkdir -p -m 711 /run/hbatune /var/lib/hbatune
export HBATUNE_CONFIG='profile = "oltp"
[site]
exclude = ["sda", "sdb"]'
podman run --detach --name hbatune $host -e HBATUNE_CONFIG $image daemon >/dev/null
wait_until_ready
podman exec hbatune hbatune status --short
podman rm --force --time 150 hbatune >/dev/null
echo "--- left"
"""
    show = f"cat /proc/irq/50/smp_affinity_list; {_OWN_FILES}"
    end = """
echo "--- removed"
podman run --rm $host $image uninstall; echo $?
rmdir /run/hbatune /var/lib/hbatune
podman rmi --force $image >/dev/null
podman images --quiet
echo "--- nothing"
"""
    output = "\n".join(host.bash(f"{begin}{show}{end}{show}"))
    daemon, _, output = output.partition("\n--- left\n")
    left, _, output = output.partition("\n--- removed\n")
    removal, _, nothing = output.partition("\n--- nothing\n")

    assert daemon.endswith("daemon ok")
    value, *files = left.splitlines()
    assert value == "0", "the daemon's value stays"
    assert "/run/hbatune/site/hbatune.toml" in files
    assert "/var/lib/hbatune/journal.json" in files
    roots = ("/run/hbatune", "/var/lib/hbatune")
    assert [path for path in files if not path.startswith(roots)] == []
    assert removal.splitlines()[-1] == "0"
    assert nothing.splitlines() == ["5"], "every value is restored, and no file remains"

    save_results(
        "the container image built by make oci, run by podman on a described machine: its size, "
        "and the files that a removed container left until `uninstall` in a container",
        name="container",
        MiB=round(archive.stat().st_size / (1 << 20)),
        left=files,
    )
