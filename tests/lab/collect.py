"""pytest hooks: the tests of a ``guest`` folder as ordinary items of the host, once per kernel.

The host never imports those files; it reads the names of their test functions. What became of
them is told by the guests, which run beside the tests that need none.
"""

import ast
import contextlib
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from threading import Semaphore
from typing import Any

import pytest

from tests.lab.alone import alone
from tests.lab.emulator import emulator
from tests.lab.events import Result
from tests.lab.guestrun import GuestRun
from tests.lab.image import debian_12_image
from tests.lab.job import JobDisks, tests_job
from tests.lab.kernels import find_series, image, kernels
from tests.lab.machine import ONE_THREAD, THREAD_PER_CPU, Machine
from tests.lab.problem import LabError, require_lab
from tests.lab.progress import step
from tests.lab.topology import Topology, make_disk
from tests.lab.wheel import CHECKOUT
from tools import deb
from tools.wheel import BuildError

PLACES = 3
"""The number of guests that run at the same time on two CPUs: each waits for a third of its time.
With four, the same load took a sixth longer for each guest."""
LAST_WORDS_SECONDS = 60

ONE_BY_ONE = pytest.StashKey[bool]()
"""Set in a session that measures times: no guest runs beside another, which would slow it."""


class GuestFailure(Exception):
    """A test failed in the guest; the text is the guest's own account of it."""


class GuestFile(pytest.File):
    """A test file that runs in the guest."""

    def collect(self) -> Iterable[pytest.Item]:
        content = ast.parse(self.path.read_bytes()).body
        names = _named() or _constant(content, "KERNELS", kernels())
        try:
            serieses = [find_series(name) for name in names]
        except LabError as error:
            raise self.CollectError(str(error)) from error
        topology = Topology(_constant(content, "TOPOLOGY", Topology.MIXED))
        for function in content:
            if isinstance(function, ast.FunctionDef) and function.name.startswith("test_"):
                for series in serieses:
                    name = f"{function.name}[{series}]"
                    yield GuestItem.from_parent(self, name=name, topology=topology)
            elif isinstance(function, ast.ClassDef) and function.name.startswith("Test"):
                raise self.CollectError(f"{self.path}: guest tests are functions, not classes")


def _constant(content: Iterable[ast.stmt], name: str, default: Any) -> Any:
    """Return what a file says of its guests.

    ``KERNELS`` names the kernels that it is run under, the newest one as ``newest``; one may be
    proof enough, so that a full run stays short. ``TOPOLOGY`` is the machine that it needs
    (topology.py).
    """
    for statement in content:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == name:
            return ast.literal_eval(statement.value)
    return default


class GuestItem(pytest.Item):
    """One test function under one kernel, with all its parameters."""

    seconds = 0.0

    def __init__(self, *, topology: Topology, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.topology = topology
        self.add_marker("lab")

    @property
    def series(self) -> str:
        """The kernel's series."""
        return self.name.partition("[")[2].rstrip("]")

    @property
    def guest(self) -> "Guest":
        """The guest that it runs in."""
        return self.topology, self.series

    @property
    def guest_name(self) -> str:
        """The test's name in the guest, without parameters."""
        return self.nodeid.partition("[")[0]

    def runtest(self) -> None:
        results = _lab(self.session).results(self.guest, self.guest_name)
        self.seconds = sum(result.seconds for result in results)
        failed = [result for result in results if result.outcome == "failed"]
        if failed:
            self._add_output(failed)
            accounts = "\n\n".join(map(self._account, failed))
            raise GuestFailure(f"on Linux {image(self.series).release(self.series)}: {accounts}")
        if all(result.outcome == "skipped" for result in results):
            pytest.skip(results[0].text)
        if any(result.outcome == "xfailed" for result in results):
            pytest.xfail(results[0].text)

    def _account(self, result: Result) -> str:
        parameters = result.test.removeprefix(self.guest_name)
        return f"{parameters}: {result.text}" if parameters else result.text

    def _add_output(self, results: Iterable[Result]) -> None:
        for result in results:
            for title, text in result.sections:
                self.add_report_section("call", f"{title} in the guest", text)

    def repr_failure(
        self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None
    ) -> str | Any:
        if isinstance(excinfo.value, GuestFailure | LabError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, self.name


Guest = tuple[Topology, str]
"""A machine and the series of its kernel."""


class Lab:
    """The guests of one pytest session: in turn, three at a time or one alone."""

    def __init__(self, session: pytest.Session) -> None:
        self._stack = contextlib.ExitStack()
        self._session = session
        self._machines: dict[Guest, Machine] = {}
        self._runs: dict[Guest, GuestRun] = {}
        self._problem: LabError | None = None

    def begin(self) -> None:
        """Start the guests; why that cannot be is told by the first test that needs one."""
        try:
            with _terminal(self._session):
                self._boot()
        except LabError as problem:
            self._problem = problem

    def results(self, guest: Guest, test: str) -> list[Result]:
        """Wait for one test's results. LabError where the guests could not be started."""
        if not self._runs and self._problem is None:
            self.begin()
        if self._problem:
            raise self._problem
        return self._runs[guest].results(test)

    def close(self, *, patiently: bool) -> None:
        """Fetch the artifacts if ``patiently``, and end every guest."""
        for run in self._runs.values():
            run.finish(LAST_WORDS_SECONDS if patiently else 0)
        self._stack.close()

    def repeats(self) -> Iterator[str]:
        """Say of each guest what the emulator's faults had it do again."""
        for (_, series), machine in self._machines.items():
            if machine.resets:
                yield f"lab: the guest with {series} hung in a boot: reset {machine.resets} times"
        for (_, series), run in self._runs.items():
            if run.panics:
                yield (
                    f"lab: the guest with {series} met a stale breakpoint of QEMU's: "
                    f"tests begun again: {run.panics}"
                )

    def _boot(self) -> None:
        require_lab()
        emulator()
        items = [item for item in self._session.items if isinstance(item, GuestItem)]
        folder = CHECKOUT / "build" / "lab"
        self._stack.enter_context(alone(folder))
        disks: dict[Path, JobDisks] = {}
        make_disk(folder / "disk.img")
        one_by_one = self._session.config.stash.get(ONE_BY_ONE, False)
        places = Semaphore(1 if one_by_one else PLACES)
        for (topology, series), selected in select_tests(items).items():
            name = series if topology is Topology.MIXED else f"{topology}-{series}"
            guest_folder = folder / name
            shutil.rmtree(guest_folder, ignore_errors=True)
            (guest_folder / "artifacts").mkdir(parents=True)
            guest_image = image(series)
            if guest_image.folder not in disks:
                disks[guest_image.folder] = JobDisks(folder, guest_image.python)
            packages = _packages(folder) if _needs_package(selected) else []
            machine = self._stack.enter_context(
                Machine(
                    guest_image,
                    series,
                    job=disks[guest_image.folder].make(
                        f"job-{name}", tests_job(selected), packages
                    ),
                    disk=folder / "disk.img",
                    console=guest_folder / "console.log",
                    topology=topology,
                    accelerator=THREAD_PER_CPU if one_by_one else ONE_THREAD,
                )
            )
            run = GuestRun(machine, guest_folder / "artifacts", places)
            self._machines[topology, series], self._runs[topology, series] = machine, run
            run.start()


def select_tests(items: Sequence[GuestItem]) -> dict[Guest, list[str]]:
    """Return the tests of each guest with tests, in the order in which the guests start.

    The newest kernel is first: it has the longest tests of the 9600. A guest that needs the Debian
    package follows the others of its machine, which run while the package is built.
    """
    every_series = kernels()
    chosen: dict[Guest, list[str]] = {}
    for topology in Topology:
        guests: dict[Guest, list[str]] = {}
        for position, series in reversed(list(enumerate(every_series))):
            guest = topology, series
            selected = [item.guest_name for item in items if item.guest == guest]
            if selected:
                guests[guest] = rotate_files(selected, position / len(every_series))
        for guest in sorted(guests, key=lambda guest: _needs_package(guests[guest])):
            chosen[guest] = guests[guest]
    return chosen


def _needs_package(tests: Iterable[str]) -> bool:
    return any("test_package" in test for test in tests)


def rotate_files(tests: list[str], share: float) -> list[str]:
    """Return the tests with this share of their files, the first ones, moved to the end.

    Guests with different shares wait at different times, so the CPUs are busy.
    """
    files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
    begin = files[int(len(files) * share)]
    position = [test.partition("::")[0] for test in tests].index(begin)
    return tests[position:] + tests[:position]


def _packages(folder: Path) -> list[Path]:
    """Return the Debian package in a list, none where this machine's are not for the guest."""
    python = debian_12_image().python  # test_package.py runs on Debian 12
    if sys.version_info[:2] != tuple(map(int, python.version.split("."))):
        return []
    with step("lab: building the Debian package"):
        try:
            return [deb.build(folder)]
        except BuildError as error:
            raise LabError(str(error)) from error


_LAB = pytest.StashKey[Lab]()


def _lab(session: pytest.Session) -> Lab:
    if _LAB not in session.stash:
        session.stash[_LAB] = Lab(session)
    return session.stash[_LAB]


def _named() -> list[str]:
    """The kernels that HBATUNE_LAB_KERNELS names, with spaces between: every file runs there."""
    return os.environ.get("HBATUNE_LAB_KERNELS", "").split()


@contextlib.contextmanager
def _terminal(session: pytest.Session) -> Iterator[None]:
    """Let what is said while the guests boot through to the terminal."""
    capture = session.config.pluginmanager.getplugin("capturemanager")
    if capture is None:
        yield
        return
    with capture.global_and_fixture_disabled():
        print()
        yield


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> GuestFile | None:
    """Take the files of guest folders; every other file is an ordinary module."""
    if module_path.parent.name != "guest":
        return None
    return GuestFile.from_parent(parent, path=module_path)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Report the seconds that the test took in the guest, not those of waiting for it."""
    outcome: Any = yield
    if isinstance(item, GuestItem):
        report = outcome.get_result()
        if report.when == "call":
            report.duration = item.seconds


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start the guests, where a test needs one."""
    wanted = any(isinstance(item, GuestItem) for item in session.items)
    if wanted and not session.config.option.collectonly:
        _lab(session).begin()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Leave no guest behind."""
    if _LAB in session.stash:
        completed = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        lab = session.stash[_LAB]
        lab.close(patiently=completed)
        reporter = session.config.pluginmanager.getplugin("terminalreporter")
        for line in lab.repeats():
            reporter.write_line(line)
