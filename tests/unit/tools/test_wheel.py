"""What users install: the wheel, alone in an empty environment, has everything it needs."""

import subprocess
import sys
import venv
from pathlib import Path

import pytest

from hbatune.policy.library import Library, load_profile
from hbatune.shipped import find_shipped
from tools import schemas
from tools.wheel import build_wheel

CHECKOUT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty virtual environment with hbatune's wheel and what the wheel asks for."""
    folder = tmp_path_factory.mktemp("wheel")
    wheel = build_wheel(folder)
    empty = folder / "environment"
    venv.create(empty)
    subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", "--python", str(empty), "install", str(wheel)],
        check=True,
    )
    return empty


def _output(environment: Path, program: str, *arguments: str) -> str:
    command = [str(environment / "bin" / program), *arguments]
    return subprocess.run(
        command, cwd="/", capture_output=True, text=True, check=True
    ).stdout.strip()


def test_command_prints_version(environment: Path) -> None:
    assert _output(environment, "hbatune", "--version").startswith("hbatune ")


FOLDERS = (
    "rules",
    "udev",
    "systemd",
    "templates",
    "metrics",
)


@pytest.mark.parametrize("folder", FOLDERS)
def test_wheel_ships_every_checkout_file(environment: Path, folder: str) -> None:
    code = f"from hbatune.shipped import find_shipped; print(find_shipped({folder!r}).resolve())"
    shipped = Path(_output(environment, "python", "-c", code))
    assert not shipped.is_relative_to(CHECKOUT)
    source = CHECKOUT / folder
    wanted = {path.relative_to(source) for path in source.rglob("*") if path.is_file()}
    assert {path for path in wanted if (shipped / path).is_file()} == wanted


def test_wheel_has_rules(environment: Path) -> None:
    code = "from hbatune.shipped import find_shipped; print(*find_shipped('rules').glob('*.toml'))"
    assert "oltp.toml" in _output(environment, "python", "-c", code)


def test_wheel_has_current_schemas(environment: Path) -> None:
    code = "import hbatune; print(hbatune.__path__[0])"
    folder = Path(_output(environment, "python", "-c", code)) / "schemas"
    assert {path.name: path.read_text() for path in folder.iterdir()} == schemas.files()


def test_wheel_loads_profiles(environment: Path) -> None:
    code = (
        "from hbatune.policy.library import installed_library, load_profile\n"
        "print(len(load_profile('oltp', installed_library()).rules))"
    )
    rules = load_profile("oltp", Library(find_shipped("rules"), Path("/nowhere"))).rules
    assert _output(environment, "python", "-c", code) == str(len(rules))


@pytest.mark.parametrize("package", ["tools", "tests", "systemd"])
def test_wheel_omits_checkout_only_packages(environment: Path, package: str) -> None:
    code = f"from importlib.util import find_spec; print(find_spec({package!r}))"
    assert _output(environment, "python", "-c", code) == "None"
