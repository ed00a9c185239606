"""Run in a described machine's namespace: what sets values, under a model of a slow kernel.

The argument is a JSON object: the preloaded ``library`` (slow_writes.c), how long a write
``waits`` (microseconds), the folder that ``tuned`` is unpacked in, ``hbatune``, and ``rounds``.
Prints the seconds of each apply and of each run of tuned, in turns, and those of each phase of an
apply. With ``lock`` hbatune runs once under a kernel that locks tag sets; prints the rows' outcomes
and how often the kernel answered EBUSY.
"""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests.bench.guest import phases
from tests.bench.guest.comparison import in_turns, seconds

APPLY = ("apply", "--profile", "oltp", "--no-probe")
# What tuned's profile does not set is right already, so that both write the same.
BEFORE = {
    "queue/scheduler": "[none] mq-deadline kyber",
    "queue/nr_requests": "975",
    "queue/rq_affinity": "2",
}
AFTER = {"queue/scheduler": "[mq-deadline] none", "queue/nr_requests": "2048"}
PROFILE = "same-values"

_BLOCK = Path("/sys/class/block")
_MEMORY = "[act]\nmemory_share = 0.5\n"


def _begin() -> None:
    """Bring the LUNs and hbatune's own files back to where each round begins."""
    shutil.rmtree("/var/lib/hbatune", ignore_errors=True)
    for disk in _BLOCK.iterdir():
        for name, text in BEFORE.items():
            (disk / name).write_text(f"{text}\n")


def _unlike() -> list[str]:
    """Return the disks that do not have the wanted values."""
    return [
        disk.name
        for disk in _BLOCK.iterdir()
        if any((disk / name).read_text() != f"{text}\n" for name, text in AFTER.items())
    ]


def _timed(*command: str) -> float:
    _begin()
    took = seconds(command)
    remaining = _unlike()
    assert not remaining, f"{command} left {len(remaining)} LUNs as they were"
    return took


def _configure(tuned: Path) -> None:
    """Give hbatune a configuration and tuned a profile, in a /etc of the namespace's own."""
    retained_names = ("ld.so.cache", "passwd", "group", "alternatives", "python3", "python3.11")
    for name in retained_names:
        if (Path("/etc") / name).exists():
            subprocess.run(["cp", "-a", f"/etc/{name}", "/run"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/etc"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/var/log"], check=True)
    for name in retained_names:
        if (Path("/run") / name).exists():
            subprocess.run(["cp", "-a", f"/run/{name}", "/etc"], check=True)
    (Path("/etc/hbatune")).mkdir()
    Path("/etc/hbatune/hbatune.toml").write_text(_MEMORY)
    shutil.copytree(tuned / "etc/tuned", "/etc/tuned")
    main = Path("/etc/tuned/tuned-main.conf")
    main.write_text(main.read_text().replace("daemon = 1", "daemon = 0"))
    disks = sorted(path.name for path in _BLOCK.iterdir())
    host = str((_BLOCK / disks[0]).resolve()).partition("/target")[0]
    folder = Path("/etc/tuned") / PROFILE
    folder.mkdir()
    (folder / "tuned.conf").write_text(
        f"[main]\nsummary=the values of oltp\n\n"
        f"[disk]\ndynamic=0\ndevices={','.join(disks)}\nelevator=mq-deadline\n\n"
        f"[sysfs]\npriority=10\n{host}/target*/*/block/*/queue/nr_requests=2048\n"
    )


def _locked(apply: list[str], model: list[str]) -> dict[str, Any]:
    """Return the outcomes of an apply under locks, and the number of EBUSY that it met."""
    _begin()
    locks, log = Path("/run/locks"), Path("/run/refused")
    locks.mkdir(exist_ok=True)
    log.write_text("")
    lock_environment = [f"SLOW_WRITES_LOCK={locks}", f"SLOW_WRITES_LOG={log}"]
    done = subprocess.run(
        ["env", *model, *lock_environment, *apply, "--json"], stdout=subprocess.PIPE, check=True
    )
    rows = json.loads(done.stdout)["rows"]
    outcomes = Counter(row["outcome"] for row in rows if row["state"] == "drift")
    return {"outcomes": dict(outcomes), "busy": len(log.read_text().split())}


def _phases(python: Path, model: list[str]) -> tuple[float, dict[str, float]]:
    """Return the wall time of an apply and the seconds of its phases."""
    file = Path("/run/phases")
    took = _timed("env", *model, *phases.command(str(python), file, APPLY))
    return took, json.loads(file.read_text())


def main() -> None:
    """Do what the argument asks for."""
    wanted = json.loads(sys.argv[1])
    tuned = Path(wanted["tuned"])
    _configure(tuned)
    model = [f"LD_PRELOAD={wanted['library']}", f"SLOW_WRITES_US={wanted['waits']}"]
    apply = [wanted["hbatune"], *APPLY]
    if wanted.get("lock"):
        print(json.dumps(_locked(apply, model)))
        return
    # As installed, but for the folder: Debian's python3, which its own script names.
    path = f"PYTHONPATH={tuned}/usr/lib/python3/dist-packages"
    tuned_command = ["/usr/bin/python3", "-s", f"{tuned}/usr/sbin/tuned", "--profile", PROFILE]
    subject, reference = in_turns(
        wanted["rounds"],
        lambda: _timed("env", *model, *apply),
        lambda: _timed("env", *model, path, *tuned_command),
    )
    python = Path(wanted["hbatune"]).with_name("python3")
    split = phases.split([_phases(python, model) for _ in range(wanted["rounds"])])
    print(json.dumps({"subject": subject, "reference": reference, "split": split}))


if __name__ == "__main__":
    os.environ.pop("PYTHONPATH", None)
    main()
