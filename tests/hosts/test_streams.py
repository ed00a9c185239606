"""Commands whose caller has closed standard descriptors do what they do with them open."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

from tests.hosts import interrupts
from tests.hosts.namespace import OWN_CONFIGURATION, run
from tests.hosts.tree import Described

Build = Callable[[Described], Path]

# Runs each command with these descriptors closed, and once with all open; prints what came of it:
# exit codes, and the values of the machine after each command.
_DRIVER = """
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

HBATUNE = [sys.executable, "-c", "import sys; from hbatune.cli import main; sys.exit(main())"]
OURS = (Path("/etc/hbatune"), Path("/var/lib/hbatune"), Path("/run/hbatune"))


def values():
    files = [*Path("/sys/class/block").glob("*/queue/*"), *Path("/proc/irq").glob("*/*list")]
    return {str(file): file.read_text() for file in files if file.is_file()}


def started(closed, *words):
    def close():
        for descriptor in closed:
            os.close(descriptor)

    pipe = subprocess.PIPE
    return subprocess.Popen([*HBATUNE, *words], stdin=pipe, stdout=pipe, stderr=pipe,
                            preexec_fn=close)


def ran(closed, *words):
    process = started(closed, *words)
    said = process.communicate()
    return process.returncode, values(), [each.decode() for each in said]


def kept(closed):
    Path("/proc/irq/50/smp_affinity_list").write_text("5")
    daemon = started(closed, "daemon")
    until = time.monotonic() + 15
    while '"running": true' not in ran((), "status", "--json")[2][0] and time.monotonic() < until:
        pass
    daemon.send_signal(signal.SIGTERM)
    daemon.communicate(timeout=30)
    return daemon.returncode, values(), ["", ""]


def everything(closed):
    for path, text in before.items():
        Path(path).write_text(text)
    for folder in OURS:
        shutil.rmtree(folder, ignore_errors=True)
    done = {
        "list": ran(closed, "list"),
        "diff": ran(closed, "diff", "--profile", "oltp"),
        "wrong": ran(closed, "diff", "--profile", "nosuch"),
        "apply": ran(closed, "apply", "--profile", "oltp", "--no-probe", "irq50", "irq60"),
        "no daemon": ran(closed, "status"),
        "rollback": ran(closed, "rollback"),
        "again": ran(closed, "apply", "--profile", "oltp", "--no-probe"),
        "daemon": kept(closed),
    }
    return done


before = values()
print(json.dumps({str(closed): everything(closed) for closed in json.loads(sys.argv[1])}))
"""


def test_closed_descriptors_change_nothing(built: Build) -> None:
    root = built(interrupts.two_nodes())
    variants = json.dumps([[], [0], [1], [2], [0, 1, 2]])
    command = [*OWN_CONFIGURATION, sys.executable, "-c", _DRIVER, variants]
    done: dict[str, dict[str, tuple[int, dict[str, str], list[str]]]]
    done = json.loads(run(root, command, timeout=300))
    opened = done.pop("[]")
    assert {name: code for name, (code, _, _) in opened.items()} == {
        "list": 0,
        "diff": 1,
        "wrong": 2,
        "apply": 0,
        "no daemon": 1,  # it has drifted: two interrupts were applied
        "rollback": 0,
        "again": 0,
        "daemon": 0,
    }
    after = {
        name: values["/proc/irq/50/smp_affinity_list"] for name, (_, values, _) in opened.items()
    }
    assert after["diff"].strip() == after["rollback"].strip() == "5"
    assert after["apply"].strip() == after["daemon"].strip() == "0"
    for closed, commands in done.items():
        for name, (code, values, outputs) in commands.items():
            assert (code, values) == (opened[name][0], opened[name][1]), (closed, name, outputs)
            assert "Traceback" not in outputs[1], (closed, name)
    for name, (_, _, (out, err)) in opened.items():
        assert done["[0]"][name][2] == [out, err], name
        assert done["[1]"][name][2] == ["", err], name
        assert done["[2]"][name][2] == [out, ""], name


def test_unwritable_output_is_reported_last(built: Build) -> None:
    root = built(interrupts.two_nodes())
    script = (
        '"$@" apply --profile oltp --no-probe irq50 >/dev/full 2>/run/said\n'
        'printf "%s\\n" "$?" "$(cat /proc/irq/50/smp_affinity_list)" "$(cat /run/said)"\n'
        '"$@" rollback 2>/dev/full >/dev/null\n'
        'printf "%s\\n" "$?" "$(cat /proc/irq/50/smp_affinity_list)"\n'
    )
    main = "import sys; from hbatune.cli import main; sys.exit(main())"
    printed = run(
        root, [*OWN_CONFIGURATION, "sh", "-c", script, "sh", sys.executable, "-c", main]
    ).decode()
    code, applied, messages, code_back, back = printed.split("\n")[:5]
    assert (code, applied) == ("74", "0")
    assert messages == "hbatune: the output cannot be written: No space left on device"
    assert (code_back, back) == ("0", "5")


def test_broken_pipe_ends_only_watch(
    built: Build,
) -> None:
    root = built(interrupts.two_nodes())
    script = (
        # The reader has ended before the first line comes.
        '{ read go </run/fifo; "$@" apply --profile oltp --no-probe irq50 2>/run/said\n'
        "echo $? >/run/applied; } | { exec <&-; echo gone >/run/fifo; }\n"
        '{ "$@" watch --json --interval 0.1 2>/run/no; echo $? >/run/told; } | head -1 >/run/one\n'
        "cat /run/applied /run/told /proc/irq/50/smp_affinity_list /run/said\n"
    )
    main = "import sys; from hbatune.cli import main; sys.exit(main())"
    printed = run(
        root,
        [
            *OWN_CONFIGURATION,
            *("sh", "-c", f"mkfifo /run/fifo\n{script}", "sh", sys.executable, "-c", main),
        ],
    ).decode()
    assert printed.split() == ["141", "141", "0"]
