"""pytest plugin of the guest: streams each result to the host and ends tests that hang."""

import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from tests.lab.agent import boots
from tests.lab.agent.port import Port

DEADLINE = 300  # seconds for one test with its fixtures, where no marker says otherwise


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"deadline(seconds): instead of {DEADLINE} s for this test")
    config.pluginmanager.register(Reporter(Port()))


def _deadline(item: pytest.Item) -> int:
    marker = item.get_closest_marker("deadline")
    return int(marker.args[0]) if marker else DEADLINE


class Reporter:
    """One event when a test begins, one with everything about it when it ends."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._phases: list[pytest.TestReport] = []
        self._left: list[str] = []

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._port.send("broken", file=report.nodeid, text=report.longreprtext)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._left = [item.nodeid for item in session.items]
        self._port.send("collected", tests=self._left)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        seconds = _deadline(item)
        boots.leave(self._left)
        self._port.send("begin", test=item.nodeid, deadline=seconds)
        self._phases = []

        def late(signum: int, frame: FrameType | None) -> None:
            pytest.fail(f"not finished after {seconds} s")

        signal.signal(signal.SIGALRM, late)
        signal.alarm(seconds)
        ended: Any = yield
        signal.alarm(0)
        if ended.excinfo is not None:  # pytest itself is ended, by the test or from outside
            if ended.excinfo[0] is pytest.exit.Exception:
                boots.ask()
            return
        self._left.remove(item.nodeid)
        self._port.send("result", test=item.nodeid, **_merged(self._phases))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._phases.append(report)


def _merged(phases: list[pytest.TestReport]) -> dict[str, Any]:
    outcome, text = "passed", ""
    for phase in phases:
        if phase.failed:
            outcome, text = "failed", f"{text}{phase.longreprtext}\n"
        elif phase.skipped and outcome == "passed":
            outcome = "xfailed" if hasattr(phase, "wasxfail") else "skipped"
            text = _reason(phase)
    return {
        "outcome": outcome,
        "text": text,
        "sections": phases[-1].sections if phases and outcome == "failed" else [],
        "seconds": sum(phase.duration for phase in phases),
    }


def _reason(phase: pytest.TestReport) -> str:
    if hasattr(phase, "wasxfail"):
        return str(phase.wasxfail)
    return str(phase.longrepr[2]) if isinstance(phase.longrepr, tuple) else phase.longreprtext
