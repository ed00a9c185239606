"""The daemon's processes and the modules that only they load."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import hbatune
from hbatune.agent import orders, passes, work
from hbatune.agent.orders import (
    Order,
    PassReason,
    decode_report,
)
from hbatune.errors import UsageError
from hbatune.policy import config as configuration
from hbatune.policy.config import Config
from tests.unit.profiles import profile

REPLACED = "hbatune was reinstalled after the daemon started"


@pytest.fixture
def successor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of a package that has taken the place of the one that runs, and does not run.

    It has the module that is looked for: an interpreter must not go on to the real one.
    """
    folder = tmp_path / "hbatune"
    (folder / "agent").mkdir(parents=True)
    for package in (folder, folder / "agent"):
        (package / "__init__.py").touch()
    (folder / "agent/work.py").write_text("raise ImportError\n")
    monkeypatch.setattr(hbatune, "__file__", os.fspath(folder / "__init__.py"))
    monkeypatch.setattr(sys, "path", [os.fspath(tmp_path), *sys.path])
    return folder


def test_replaced_version_refuses_pass(successor: Path) -> None:
    """Modules that are loaded later must not be those of a package that was replaced since."""
    order = orders.encode(Order(PassReason.AUDIT))
    report = decode_report(work.PassMaker(Config(), profile()).make(order))
    assert report.error == REPLACED
    assert report.hint == "systemctl restart hbatune"
    assert report.subjects is None


@pytest.mark.parametrize("problem", ["", "3 of 5 values"])
def test_installed_version_restores_values(successor: Path, problem: str) -> None:
    (successor / "agent/work.py").write_text(
        "from pathlib import Path\n"
        "def put_back_for_predecessor():\n"
        "    Path(__file__).with_name('done').touch()\n"
        f"    print({problem!r})\n"
    )
    assert work.restore_all(Config()) == (problem or None)
    assert (successor / "agent/done").exists()


def test_broken_successor_is_reported(successor: Path) -> None:
    assert work.restore_all(Config()) == (
        f"{REPLACED}, and what is installed now does not run: install it again"
    )


def test_hung_successor_times_out(successor: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (successor / "agent/work.py").write_text("import time\ntime.sleep(1000)\n")
    monkeypatch.setattr(work, "RESTORE_TIMEOUT_S", 0.2)
    assert work.restore_all(Config()) == (
        f"{REPLACED}, and restoring the values failed: it did not end within 0.2 s"
    )


@pytest.mark.parametrize("error", [None, "3 of 5 values"])
@pytest.mark.parametrize("mistake", [False, True])
def test_predecessor_restore_survives_mistake(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    mistake: bool,
    error: str | None,
) -> None:
    """A mistake in the configuration keeps no value."""
    loaded_config = Config(profile="oltp")

    def configured() -> Config:
        if mistake:
            raise UsageError("no such key")
        return loaded_config

    configs = []

    def put_back(config: Config) -> str | None:
        configs.append(config)
        return error

    monkeypatch.setattr(configuration, "load_configuration", configured)
    monkeypatch.setattr(passes, "restore_all", put_back)
    work.put_back_for_predecessor()
    assert configs == [Config() if mistake else loaded_config]
    assert capsys.readouterr().out.strip() == (error or "")


def test_daemon_imports_stay_light() -> None:
    words = "import sys, hbatune.cli.commands.daemon; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-c", words], stdout=subprocess.PIPE, check=True)
    modules = set(done.stdout.decode().split())
    heavy = {"subprocess", "shutil", "hashlib", "statistics", "configparser", "traceback"}
    rooms = ("operations", "plan.make", "probe.run", "act.writer", "act.journal", "facts.machine")
    assert not modules & heavy
    assert not modules & {f"hbatune.{room}" for room in rooms}


def test_order_survives_encoding() -> None:
    order = Order(PassReason.EVENT, left=frozenset({("id", "scheduler")}))
    assert msgspec.msgpack.decode(orders.encode(order), type=Order) == order
