"""The laws of the rooms (ARCHITECTURE.md), read from the code itself."""

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[3] / "hbatune"

ROOMS = (
    *("errors", "shipped", "nvme", "mpi", "loader", "processes", "children", "workers", "render"),
    *("facts", "text.limit_text", "settings", "policy", "plan", "snapshot"),
    *("act", "boot", "probe", "search", "checks", "watch", "sizing"),
    *("operations", "agent", "fleet", "text", "report", "cli", "__main__"),
)
"""From the lowest to the highest: a room imports from itself and from those before it.

The sentences of limits are low, since policy, findings, operations and rollbacks need them.
"""

UPWARDS = {
    ("render", "probe"): "a type alone, for the checker: fio's zone modes",
}
"""Imports of a higher room that are there today, each with its reason; none is to come."""

OPENS = {
    "cli.streams": "/dev/null, in the place of standard streams that are closed",
    "text.basic_output": "/dev/null, for what --quiet leaves out",
    "nvme": "the device node, for admin commands; only act asks for one that sets something",
    "mpi": "the device node, for requests to a firmware; only act asks for one that sets something",
    "operations.boot_files": "a temporary folder, in which udev judges the rules to come",
    "probe.fio": "the logs of a replay, in the temporary folder of its run",
    "probe.guard": "the file that a probe without --destructive writes to, made for it",
    "workers.worker": "/dev/null, for the standard streams of a worker",
}
"""Modules outside of act that open a file for writing, none of which is the kernel's."""

LOOKS = {
    "probe.guard": "the node in /dev, and partitions once more just before a destructive probe",
}
"""Modules outside of facts and act that look into a device's directory in sysfs."""

_OPENING = {"O_WRONLY", "O_RDWR", "write_text", "write_bytes", "TemporaryFile"}
_IO = {"os", "io", "pathlib", "shutil", "socket", "subprocess", "tempfile", "asyncio", "select"}


@cache
def modules() -> dict[str, ast.Module]:
    """Return every module of hbatune by its name below the package."""
    trees = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        if name:
            trees[name] = ast.parse(path.read_text(encoding="utf-8"))
    return trees


def room(module: str) -> str:
    """Return the room that a module, or a name in it, is in."""
    low = "text.limit_text"
    return low if f"{module}.".startswith(f"{low}.") else module.partition(".")[0]


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield the modules that a module imports, in full."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def list_imported_rooms(tree: ast.AST) -> Iterator[str]:
    """Yield the rooms of hbatune that a module imports from."""
    for name in imported(tree):
        below = name.removeprefix("hbatune.")
        if below != name and room(below) in ROOMS:
            yield room(below)


def test_every_module_has_room() -> None:
    assert {room(name) for name in modules()} <= set(ROOMS)


@pytest.mark.parametrize("lower", ROOMS)
def test_rooms_import_downwards_only(lower: str) -> None:
    for name, tree in modules().items():
        if room(name) != lower:
            continue
        for imported_room in set(list_imported_rooms(tree)):
            if ROOMS.index(imported_room) > ROOMS.index(lower) and not {
                (name, imported_room),
                (lower, imported_room),
            } & set(UPWARDS):
                pytest.fail(f"{name} imports from {imported_room}, which is a higher room")


def test_module_imports_are_acyclic() -> None:
    """Imports in functions included; only those for type checkers may form a circle."""
    own_modules = {f"hbatune.{name}" for name in modules()}
    graph = {}
    for name, tree in modules().items():
        path = PACKAGE / f"{name.replace('.', '/')}.py"
        if not path.exists():  # a package: its __init__ names its modules
            continue
        for_types = {
            inner
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
            for inner in imported(node)
        }
        graph[f"hbatune.{name}"] = (set(imported(tree)) - for_types) & own_modules
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def test_module_names_are_unique() -> None:
    """An editor's tab then says which module it shows; commands and families are told by room."""
    names = Counter(
        name.rpartition(".")[2]
        for name in modules()
        if not name.startswith(("cli.commands.", "facts.families."))
        and (PACKAGE / f"{name.replace('.', '/')}.py").exists()
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_class_names_are_unique() -> None:
    names = Counter(
        node.name
        for tree in modules().values()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in names.items() if count > 1] == []


MAX_LONG_SIGNATURES = 15
"""Functions that may take more than six parameters. The others take a value that groups them."""


def test_few_functions_take_many_parameters() -> None:
    long = []
    for name, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                arguments = node.args
                parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
                if len([item for item in parameters if item.arg not in ("self", "cls")]) > 6:
                    long.append(f"{name}.{node.name}")
    assert len(long) <= MAX_LONG_SIGNATURES, long


def opens_for_writing(tree: ast.AST) -> bool:
    """Whether a module opens files for writing, or writes them whole."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in _OPENING:
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id != "open":
                continue
            modes = [
                *node.args[1:2],
                *(keyword.value for keyword in node.keywords if keyword.arg == "mode"),
            ]
            if any(set(ast.unparse(mode)) & set("wax+") for mode in modes):
                return True
    return False


def test_only_act_writes_kernel_files() -> None:
    writers = {name for name, tree in modules().items() if opens_for_writing(tree)}
    assert {name for name in writers if room(name) != "act"} == set(OPENS)


def test_only_facts_names_sysfs() -> None:
    for name, tree in modules().items():
        prose = {
            id(statement.value) for statement in ast.walk(tree) if isinstance(statement, ast.Expr)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                allowed = id(node) in prose or room(name) == "facts"
                assert allowed or not node.value.startswith("/sys"), f"{name}: {node.value}"


def test_device_folder_access_is_limited() -> None:
    module_names = set()
    for name, tree in modules().items():
        uses = any(
            isinstance(node, ast.Attribute) and node.attr == "sysfs" for node in ast.walk(tree)
        )
        if uses and "os" in imported(tree) and room(name) not in ("facts", "act"):
            module_names.add(name)
    assert module_names <= set(LOOKS)


def test_plan_and_search_avoid_io() -> None:
    for name, tree in modules().items():
        if room(name) in ("plan", "search"):
            assert not _IO & {
                imported_name.partition(".")[0] for imported_name in imported(tree)
            }, name
            assert not opens_for_writing(tree), name


# For the name of the file alone, below a folder that is given.
_NAMES_ALONE = {("act.rollback_record", name) for name in ("hands_off", "rollbacks")}


def test_act_and_operations_take_paths() -> None:
    """Where hbatune's own files are is decided by the command or daemon that makes the context."""
    for name, tree in modules().items():
        if room(name) in ("act", "operations") and name != "act.paths":
            fixed = {
                (name, node.attr)
                for node in ast.walk(tree)
                if isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "Paths"
            }
            assert fixed <= _NAMES_ALONE
