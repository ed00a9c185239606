"""Processes named irqbalance beside real commands: only the one of irqbalance.service counts."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from tests.hosts import interrupts
from tests.hosts.namespace import OWN_CONFIGURATION, run
from tests.hosts.tree import Described

Built = Callable[[Described], Path]

NOBODY = 65534
CONTAINER = ("unshare", "--pid", "--fork", "--mount-proc")
_PROCESS = "printf irqbalance >/proc/self/comm && echo ready && read -r line"

# Runs each command in the same namespace, and a pass of the daemon after the apply. With a process
# in argv[1], its cgroup is the unit's, for this namespace alone.
_COMMANDS = r"""
import contextlib, io, subprocess, sys
from pathlib import Path
import msgspec
from hbatune.agent import passes
from hbatune.agent.orders import decode_report
from hbatune.agent.orders import Order, PassReason
from hbatune.cli import main
from hbatune.policy.config import load_configuration
from hbatune.policy.vendors import load_chosen_profile

# Interrupts alone: a tree of files does not change nr_requests as a scheduler's switch would.
profile = Path("/etc/hbatune/profiles/placing.toml")
profile.parent.mkdir(parents=True)
profile.write_text('''
title = "interrupts"
[[rule]]
name = "placed"
setting = "irq_affinity"
value = "local"
because = "of this test"
source = "site"
''')
if pid := sys.argv[1]:
    cgroup = Path("/run/cgroup")
    cgroup.write_text("0::/system.slice/irqbalance.service\n")
    subprocess.run(["mount", "--bind", str(cgroup), f"/proc/{pid}/cgroup"], check=True)

def command(*words):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(list(words)) or 0
        except SystemExit as ended:
            code = ended.code or 0
    return code, out.getvalue(), err.getvalue()

def one_pass():
    config = load_configuration()
    try:
        chosen = load_chosen_profile(None, config)
        with contextlib.closing(passes.Memory()) as memory:
            report = passes.run(Order(PassReason.AUDIT), config, chosen, memory)
    except Exception as fault:
        return 70, "", repr(fault)
    return 0, "", decode_report(report).error or ""

def values():
    return {str(path): path.read_text() for path in Path("/proc/irq").glob("*/smp_affinity_list")}

before = values()
done = {}
for words in sys.argv[2:]:
    done[words] = one_pass() if words == "pass" else command(*words.split())
sys.stdout.write(msgspec.json.encode((done, before == values())).decode())
"""

Results = dict[str, tuple[int, str, str]]


@contextmanager
def named_irqbalance(
    *arguments: str, user: int = 0, within: Sequence[str] = (), banned: str = ""
) -> Iterator[int]:
    """Run a process named irqbalance, with these arguments, and yield its number."""
    with subprocess.Popen(
        [*within, "sh", "-c", _PROCESS, "irqbalance", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        user=user,
        env={**os.environ, **({"IRQBALANCE_BANNED_CPULIST": banned} if banned else {})},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
        process.communicate(b"\n")


def ran(root: Path, *commands: str, proven: int | None = None) -> tuple[Results, bool]:
    """Return how commands ended on the machine, and whether its interrupts are as before them."""
    words = [*OWN_CONFIGURATION, sys.executable, "-c", _COMMANDS, str(proven or ""), *commands]
    return msgspec.json.decode(run(root, words), type=tuple[Results, bool])


COMMANDS = (
    "diff --profile placing",
    "check",
    "apply --profile placing --no-probe",
    "pass",
    "rollback",
)


@pytest.mark.parametrize(
    ("user", "within", "proven"),
    [(NOBODY, (), False), (0, CONTAINER, False), (0, (), False), (0, (), True)],
    ids=["user", "container", "root", "service"],
)
def test_looping_policy_stops_no_command(
    built: Built, tmp_path: Path, user: int, within: tuple[str, ...], proven: bool
) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    root = built(interrupts.two_nodes())
    with named_irqbalance("-l", str(loop), user=user, within=within) as pid:
        done, restored = ran(root, *COMMANDS, "uninstall", proven=pid if proven else None)
    for command in (*COMMANDS[2:], "uninstall"):
        assert done[command][0] == 0, done[command]
    assert {done[command][0] for command in COMMANDS[:2]} <= {0, 1}
    assert done["pass"][2] == ""
    assert restored
    message = done["apply --profile placing --no-probe"][2]
    assert (f"which is {loop} now" in message) is proven
    unproven = f"process {pid} is not part of irqbalance.service"
    assert (unproven in message) is (user == 0 and not within and not proven)


def test_only_service_bans_cpus(built: Built) -> None:
    root = built(interrupts.two_nodes())
    diff = "diff --profile placing --json"

    def placements(proven: int | None = None) -> dict[str, tuple[str, str]]:
        done, _ = ran(root, diff, proven=proven)
        rows = msgspec.json.decode(done[diff][1])["rows"]
        placed = [row for row in rows if row["setting"] == "irq_affinity"]
        return {row["target"]: (row["value"], row["limit"]) for row in placed}

    alone = placements()
    assert alone
    for user, within in ((NOBODY, ()), (0, CONTAINER), (0, ())):
        with named_irqbalance(user=user, within=within, banned="0,4"):
            assert placements() == alone
    with named_irqbalance(banned="0,4") as pid:
        restricted = placements(pid)
    assert restricted != alone
    assert all("irqbalance's ban excludes CPUs 0,4" in limit for _, limit in restricted.values())
