"""The Ansible modules on a described machine, with hbatune itself."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jinja2 import Environment

from hbatune.snapshot.file import load_snapshot
from tests.hosts import interrupts
from tests.hosts.namespace import OWN_CONFIGURATION, can_enter, run
from tests.hosts.tree import Described, build
from tests.lab.wheel import CHECKOUT

Build = Callable[[Described], Path]
Results = dict[str, dict[str, Any]]
Task = dict[str, Any]

TARGETS = ["irq50", "irq60"]
APPLIED: Task = {"profile": "oltp", "targets": TARGETS, "probe": False}
BACK: Task = {"state": "rolled_back"}
GONE: Task = {"state": "absent"}
TASKS: tuple[tuple[str, str, Task], ...] = (
    ("no profile", "hbatune_info", {}),
    ("check", "hbatune", {**APPLIED, "_ansible_check_mode": True, "_ansible_diff": True}),
    ("applied", "hbatune", APPLIED),
    ("again", "hbatune", APPLIED),
    ("info", "hbatune_info", {"gather": ["facts", "diff", "status"], "targets": TARGETS}),
    ("back in check mode", "hbatune", {**BACK, "_ansible_check_mode": True}),
    ("back", "hbatune", BACK),
    ("back again", "hbatune", BACK),
    ("wrong", "hbatune", {"profile": "nosuch"}),
    ("no target", "hbatune", {**APPLIED, "targets": ["nosuch"]}),
    ("contrary", "hbatune", {**APPLIED, "verify": True}),
    ("no command", "hbatune_info", {"executable": "nosuch"}),
    ("no answer", "hbatune_info", {"profile": "nosuch", "gather": ["diff"]}),
    ("gone in check mode", "hbatune", {**GONE, "_ansible_check_mode": True}),
    ("gone", "hbatune", GONE),
    ("gone again", "hbatune", GONE),
)

# Runs each task's module as Ansible does, and prints its result and the interrupt's place then.
_DRIVER = """
import json
import os
import subprocess
import sys
from pathlib import Path

modules, tasks = Path(sys.argv[1]), json.loads(sys.argv[2])
environment = {**os.environ, "PYTHONPATH": sys.argv[3]}
found = {}
for name, module, arguments in tasks:
    Path("/run/arguments").write_text(json.dumps({"ANSIBLE_MODULE_ARGS": arguments}))
    command = [sys.executable, str(modules / f"{module}.py"), "/run/arguments"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    try:
        found[name] = json.loads(done.stdout)
    except ValueError:
        found[name] = {"fault": done.stdout + done.stderr}
    found[name]["irq50"] = Path("/proc/irq/50/smp_affinity_list").read_text().strip()
print(json.dumps(found))
"""

# What changes a file or makes one: openat for writing, and the calls that need no descriptor.
_WRITES = re.compile(
    r"^\d+ +(?:openat\([^,]+, \"(?P<opened>[^\"]+)\", [^)\n]*(?:O_WRONLY|O_RDWR|O_CREAT)"
    r"|(?:rename|unlink|mkdir|symlink|link|chmod|chown|truncate)\w*\(.*?\"(?P<changed>[^\"]+)\")",
    re.MULTILINE,
)
KEPT = ("/sys/", "/proc/", "/etc/", "/var/lib/hbatune", "/run/hbatune")


def collections_in(folder: Path) -> Path:
    """Return the folder, in which Ansible now finds the collection by its name."""
    (folder / "ansible_collections" / "hbatune").mkdir(parents=True)
    link = folder / "ansible_collections" / "hbatune" / "hbatune"
    link.symlink_to(CHECKOUT / "ansible")
    return folder


def ran(
    root: Path, collections: Path, *tasks: tuple[str, str, Task], traced: Path | None = None
) -> Results:
    """Run the tasks on the machine below ``root``; follow them with strace into ``traced``."""
    modules = collections / "ansible_collections/hbatune/hbatune/plugins/modules"
    executable = str(Path(sys.executable).with_name("hbatune"))
    with_command = [(n, m, {"executable": executable, **words}) for n, m, words in tasks]
    strace = (
        ()
        if traced is None
        else ("strace", "-f", "-qq", "-s", "256", "-e", "trace=file", "-o", str(traced))
    )
    words = [
        sys.executable,
        "-c",
        _DRIVER,
        str(modules),
        json.dumps(with_command),
        str(collections),
    ]
    results: Results = json.loads(run(root, [*OWN_CONFIGURATION, *strace, *words], timeout=300))
    return results


@pytest.fixture(scope="module")
def results_by_task(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Run all tasks in order and return their results."""
    if not can_enter():
        pytest.skip("needs root and mount namespaces")
    root = tmp_path_factory.mktemp("machine")
    build(interrupts.two_nodes(), root)
    return ran(root, collections_in(tmp_path_factory.mktemp("collections")), *TASKS)


def test_profile_applies_once_and_reverts(results_by_task: Results) -> None:
    for name, result in results_by_task.items():
        assert "fault" not in result, (name, result)
    failed = {name for name, result in results_by_task.items() if result.get("failed")}
    assert failed == {"wrong", "no target", "contrary", "no command", "no answer"}
    changed = {name for name, result in results_by_task.items() if result.get("changed")}
    assert changed == {
        *("check", "applied", "back in check mode", "back", "gone in check mode", "gone"),
    }
    assert {name for name, result in results_by_task.items() if result["irq50"] == "0"} == {
        *("applied", "again", "info", "back in check mode"),
    }


def test_unanswering_hbatune_fails_rollout(results_by_task: Results) -> None:
    tasks = (CHECKOUT / "ansible/roles/rollout/tasks/remember.yml").read_text()
    [condition] = re.findall(r"^  failed_when: (.*)$", tasks, re.MULTILINE)
    fails = Environment().compile_expression(condition)
    names = ("no profile", "info", "no command", "no answer")
    assert [bool(fails(rollout_before=results_by_task[name])) for name in names] == [False] * 3 + [
        True
    ]


def test_results_report_before_and_after(results_by_task: Results) -> None:
    assert results_by_task["no profile"]["active"] is None
    assert results_by_task["no profile"]["facts"]["adapters"]
    assert "diff" not in results_by_task["no profile"]
    planned, applied = results_by_task["check"], results_by_task["applied"]
    assert "irq50 irq_affinity: 5\n" in planned["diff"]["before"]
    assert "irq50 irq_affinity: 0\n" in planned["diff"]["after"]
    assert planned["diff"] == applied["diff"], "a check says what is done then"
    assert {row["outcome"] for row in applied["rows"]} == {"written"}
    assert (applied["profile"], applied["regressed"]) == ("oltp", False)
    assert results_by_task["info"]["active"] == "oltp"
    assert results_by_task["no profile"]["compared"] == 0
    assert results_by_task["info"]["compared"] == 2
    assert results_by_task["info"]["drifted"] is False
    assert results_by_task["info"]["status"]["running"] is False
    assert {row["before"] for row in results_by_task["back"]["rows"]} >= {"5"}
    assert 'no profile "nosuch"' in results_by_task["wrong"]["msg"]
    assert "nosuch" in results_by_task["no target"]["msg"]
    assert "verify" in results_by_task["contrary"]["msg"]
    assert "/var/lib/hbatune" in results_by_task["gone in check mode"]["removed"]
    assert results_by_task["gone in check mode"]["removed"] == results_by_task["gone"]["removed"]


@pytest.mark.programs
def test_missing_comparison_is_named(tmp_path: Path) -> None:
    row = {"target": "sda", "setting": "nomerges", "state": "drift", "outcome": "written"}
    late = {"before": {"type": "skipped", "target": "sdb", "reason": "no_time"}, "after": None}
    busy = {"before": {"type": "skipped", "target": "sdc", "reason": "busy"}, "after": None}
    plan = {"rows": [row | {"current": 0, "value": 1}], "summary": {"profile": "oltp"}}
    answers = {
        "diff": (1, plan),
        "profiles": (0, {"active": "oltp"}),
        "apply": (1, plan | {"probes": [busy, late], "verdicts": []}),
    }
    program = tmp_path / "hbatune"
    script = f"#!{sys.executable}\nimport json, sys\ncode, answer = {answers!r}[sys.argv[1]]\n"
    program.write_text(f"{script}print(json.dumps(answer))\nsys.exit(code)\n")
    program.chmod(0o755)
    arguments = {"ANSIBLE_MODULE_ARGS": {"executable": str(program)}}
    (tmp_path / "arguments").write_text(json.dumps(arguments))
    collections = collections_in(tmp_path / "collections")
    module = collections / "ansible_collections/hbatune/hbatune/plugins/modules/hbatune.py"
    done = subprocess.run(
        [sys.executable, str(module), str(tmp_path / "arguments")],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(collections)},
    )
    assert json.loads(done.stdout)["msg"] == "there was no time to measure sdb"


def test_check_mode_writes_nothing(built: Build, tmp_path: Path) -> None:
    collections = collections_in(tmp_path / "collections")
    check = {"_ansible_check_mode": True, "_ansible_diff": True}
    root, log = built(interrupts.two_nodes()), tmp_path / "strace"
    first = [("applied", "hbatune", APPLIED)]
    tasks = [
        ("apply", "hbatune", {**APPLIED, **check, "targets": []}),
        ("back", "hbatune", {**BACK, **check}),
        ("gone", "hbatune", {**GONE, **check}),
        ("info", "hbatune_info", dict(check)),
    ]
    results = ran(root, collections, *tasks, traced=log)
    assert all(not result.get("failed") for result in results.values()), results
    trace = log.read_text()
    assert "/proc/irq/50" in trace, "it was followed"
    written = [match["opened"] or match["changed"] for match in _WRITES.finditer(trace)]
    assert [path for path in written if path.startswith(KEPT)] == []
    # The same eyes see the writes of a run that is no check.
    ran(root, collections, *first, traced=log)
    written = [match["opened"] or match["changed"] for match in _WRITES.finditer(log.read_text())]
    assert any(path.startswith("/var/lib/hbatune") for path in written)


def test_fetched_snapshot_leaves_no_trace(tmp_path: Path, built: Build) -> None:
    root, fleet, scratch = built(interrupts.two_nodes()), tmp_path / "fleet", tmp_path / "scratch"
    scratch.mkdir()
    programs = Path(sys.executable).parent
    playbook = CHECKOUT / "ansible/playbooks/snapshots.yml"
    variables = {
        "ansible_become": False,
        "ansible_python_interpreter": sys.executable,
        "hbatune_executable": str(programs / "hbatune"),
        "hbatune_snapshots": str(fleet),
    }
    for words in ((), ("--check",)):
        run(
            root,
            [
                *("env", f"TMPDIR={scratch}", f"ANSIBLE_LOCAL_TEMP={tmp_path}/local"),
                *(f"ANSIBLE_REMOTE_TEMP={tmp_path}/remote", str(programs / "ansible-playbook")),
                *("-i", "db1,", "-c", "local", "-e", json.dumps(variables), *words, str(playbook)),
            ],
            timeout=300,
        )
    assert [path.name for path in fleet.iterdir()] == ["db1.snap"]
    assert not list(scratch.glob("hbatune*"))
    assert {"0000:01:00.0", "0000:02:00.0"} <= load_snapshot(
        fleet / "db1.snap"
    ).machine.local_cpus.keys()


# Runs the drift playbook after each step on one machine, and prints its exit code and output.
_DRIFT_DRIVER = """
import json
import subprocess
import sys
from pathlib import Path

hbatune, playbook, steps = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
results = {}
for name, commands, variables in steps:
    for command in commands:
        subprocess.run([hbatune, *command], check=True, capture_output=True)
    words = [*playbook, "-e", json.dumps(variables)]
    done = subprocess.run(words, capture_output=True, text=True)
    results[name] = [done.returncode, done.stdout + done.stderr]
print(json.dumps(results))
"""

APPLY = ["apply", "--profile", "oltp", "--no-probe", *TARGETS]
OLTP = {"hbatune_profile": "oltp", "hbatune_targets": TARGETS}
ROLLED_BACK = ["rollback", *TARGETS]
DRIFT_STEPS: tuple[tuple[str, list[list[str]], Task], ...] = (
    ("never rolled out", [], {"hbatune_targets": TARGETS}),
    ("never rolled out, with the profile", [], OLTP),
    ("applied", [APPLY], OLTP),
    ("applied, without variables", [], {"hbatune_targets": TARGETS}),
    ("another profile", [], {**OLTP, "hbatune_profile": "throughput"}),
    ("targets rolled back", [ROLLED_BACK], OLTP),
    ("drifted", [APPLY], {}),
    ("rolled back", [["rollback"]], OLTP),
    ("rolled back, without variables", [], {}),
    ("no command", [], {"hbatune_executable": "nosuch"}),
)


@pytest.fixture(scope="module")
def drift_results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """Run the drift playbook in each state of a machine; return its exit code and output."""
    if not can_enter():
        pytest.skip("needs root and mount namespaces")
    root, folder = tmp_path_factory.mktemp("drifting"), tmp_path_factory.mktemp("ansible")
    build(interrupts.two_nodes(), root)
    programs = Path(sys.executable).parent
    shared = {
        "ansible_become": False,
        "ansible_python_interpreter": sys.executable,
        "hbatune_executable": str(programs / "hbatune"),
    }
    playbook = [
        *("env", f"ANSIBLE_COLLECTIONS_PATH={collections_in(folder)}", "ANSIBLE_NOCOLOR=1"),
        *(f"ANSIBLE_LOCAL_TEMP={folder}/local", f"ANSIBLE_REMOTE_TEMP={folder}/remote"),
        *(str(programs / "ansible-playbook"), "-i", "db1,", "-c", "local"),
        *("-e", json.dumps(shared), "hbatune.hbatune.drift"),
    ]
    words = [sys.executable, "-c", _DRIFT_DRIVER, str(programs / "hbatune")]
    words += [json.dumps(playbook), json.dumps(DRIFT_STEPS)]
    results: dict[str, tuple[int, str]] = json.loads(
        run(root, [*OWN_CONFIGURATION, *words], timeout=300)
    )
    return results


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("never rolled out", "no profile is active"),
        ("never rolled out, with the profile", "-i inventory -e hbatune_profile=oltp --limit db1"),
        ("another profile", "profile oltp is active on db1, the role sets throughput"),
        ("targets rolled back", "nothing was compared on db1"),
        ("drifted", "of db1 differ from profile oltp"),
        ("rolled back", "`hbatune -H db1 status` shows which"),
        ("rolled back, without variables", "no profile is active"),
        ("no command", "nosuch"),
    ],
)
def test_drift_playbook_fails_without_evidence(
    drift_results: dict[str, tuple[int, str]], state: str, reason: str
) -> None:
    code, text = drift_results[state]
    assert code == 2, text
    assert reason in " ".join(text.split())
    assert "failed=1" in text


@pytest.mark.parametrize("state", ["applied", "applied, without variables"])
def test_drift_playbook_passes_compared_host(
    drift_results: dict[str, tuple[int, str]], state: str
) -> None:
    code, text = drift_results[state]
    assert code == 0, text
    assert "2 settings are as profile oltp requires" in " ".join(text.split())


_LINT = shutil.which("ansible-lint", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")


@pytest.mark.programs
@pytest.mark.skipif(_LINT is None, reason="no ansible-lint: `make setup` installs it")
def test_collection_passes_production_lint(tmp_path: Path) -> None:
    folder = collections_in(tmp_path) / "ansible_collections/hbatune/hbatune"
    environment = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": str(tmp_path),
        "ANSIBLE_HOME": str(tmp_path / "home"),
        "PATH": f"{Path(str(_LINT)).parent}:{os.environ['PATH']}",
        "PWD": str(folder),
    }
    words = [str(_LINT), "--offline", "--nocolor", "--profile", "production"]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
