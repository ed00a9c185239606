"""What `make demo` and `make test` install: only what each needs, quietly, and said beforehand."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[3]
FAKES = {
    "dpkg-query": "exit 1",
    "id": "echo $UNDER_TEST_UID",
    "apt-get": """
echo "$@" >>"$CALLS"
case "$*" in
*--assume-no*)
    cat <<PLAN
0 upgraded, 61 newly installed, 0 to remove and 0 not upgraded.
Need to get 32.2 MB of archives.
After this operation, 152 MB of additional disk space will be used.
PLAN
    exit 1 ;;
"$FAILS") echo "E: out of reach"; exit 100 ;;
esac
echo "a thousand lines of apt"
""",
}


@dataclass(frozen=True)
class Setup:
    """One run of .ci/packages."""

    code: int
    out: str
    err: str
    calls: str
    log: str

    @property
    def wanted(self) -> set[str]:
        """The packages that apt was to install."""
        [line] = [line for line in self.calls.splitlines() if line.endswith("--yes")]
        return {argument for argument in line.split()[1:] if not argument.startswith("-")}


def packages(folder: Path, target: str, *, uid: int = 0, fails: str = "nothing") -> Setup:
    """Run a copy of .ci/packages with no package installed and an apt that records its calls."""
    programs, calls = folder / "bin", folder / "calls"
    (folder / ".ci").mkdir()
    programs.mkdir()
    calls.touch()
    shutil.copy(CHECKOUT / ".ci/packages", folder / ".ci")
    (folder / "debian").mkdir()
    shutil.copy(CHECKOUT / "debian/control", folder / "debian")
    for name, script in FAKES.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    done = subprocess.run(
        [folder / ".ci/packages", target],
        env={
            "PATH": f"{programs}:{os.environ['PATH']}",
            "CALLS": str(calls),
            "FAILS": fails,
            "UNDER_TEST_UID": str(uid),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    log = folder / "build/setup.log"
    text = log.read_text() if log.exists() else ""
    return Setup(done.returncode, done.stdout, done.stderr, calls.read_text(), text)


def test_demo_installs_no_developer_tools(tmp_path: Path) -> None:
    wanted = packages(tmp_path, "lab").wanted
    assert {"mmdebstrap", "python3-venv"} <= wanted
    assert not wanted & {
        "qemu-system-x86",
        "chromium",
        "strace",
        "prometheus",
        "fio",
        "udev",
        "systemd-sysv",
    }


def test_build_installs_no_machine(tmp_path: Path) -> None:
    wanted = packages(tmp_path, "build").wanted
    assert not wanted & {"qemu-system-x86", "mmdebstrap", "chromium", "fio"}


def test_deb_installs_build_dependencies(tmp_path: Path) -> None:
    wanted = packages(tmp_path, "deb").wanted
    assert {"build-essential", "debhelper", "dh-python", "lintian", "python3-rich"} <= wanted
    assert len(wanted & {"python3-msgspec", "python3-dev"}) == 1
    assert ".ci/packages deb" in dry_run_make("deb")


def test_tests_install_all_tools(tmp_path: Path) -> None:
    wanted = packages(tmp_path, "all").wanted
    assert {"mmdebstrap", "chromium", "strace", "fio", "udev", "debhelper"} <= wanted
    assert {"cockpit-ws", "cockpit-bridge"} <= wanted


def test_soak_installs_ssh_and_lint(tmp_path: Path) -> None:
    wanted = packages(tmp_path, "soak").wanted
    assert {"openssh-client", "rpmlint", "rpm", "autopkgtest"} <= wanted
    assert ".ci/packages soak" in dry_run_make("soak")
    assert ".ci/packages soak" not in dry_run_make("test")


def test_apt_output_goes_to_log(tmp_path: Path) -> None:
    done = packages(tmp_path, "lab")
    assert done.code == 0, done.err
    assert "apt" not in done.out
    assert done.log.count("a thousand lines of apt") == 2
    assert len(done.out.splitlines()) == 2
    assert "32.2 MB to download, 152 MB of room" in done.out
    assert done.err == ""


def test_log_ends_with_removal_command(tmp_path: Path) -> None:
    done = packages(tmp_path, "lab")
    before, _, after = done.log.splitlines()[-1].partition(" && ")
    assert before.startswith("To remove these again: apt-get purge ")
    assert set(before.partition("purge")[2].split()) == done.wanted - {"install"}
    assert after == "apt-get autoremove --purge"


def test_apt_failure_is_shown(tmp_path: Path) -> None:
    done = packages(tmp_path, "lab", fails="update")
    assert done.code == 1
    assert "E: out of reach" in done.err
    assert "build/setup.log" in done.err


def test_non_root_gets_install_command(tmp_path: Path) -> None:
    done = packages(tmp_path, "all", uid=1000)
    assert done.code == 1
    assert "mmdebstrap" in done.err
    assert "As root: apt-get update && apt-get install" in done.err
    assert done.calls == ""


def dry_run_make(*words: str) -> str:
    """Return the commands that make would run."""
    command = ["make", "--dry-run", "--always-make", "--no-print-directory", *words]
    return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout


def test_demo_needs_no_test_tools() -> None:
    commands = dry_run_make("demo")
    assert ".ci/packages lab" in commands
    assert "promtool" not in commands
    assert "build,dev" not in commands


@pytest.mark.parametrize("target", ["test", "lab", "bench", "soak"])
def test_test_targets_get_test_tools(target: str) -> None:
    commands = dry_run_make(target)
    assert ".ci/packages all" in commands
    assert "promtool" in commands
    assert "build,dev" in commands
