"""The texts that ship: each value has its text, and each text its value."""

from enum import Enum

import pytest

from hbatune.agent.host_state import StallCause
from hbatune.errors import ExitCode
from hbatune.fleet.compared_facts import FactKind
from hbatune.fleet.hosts import HostState, ReadFailure
from hbatune.probe.comparison import Headroom
from hbatune.probe.history import Bottleneck, Stale
from hbatune.probe.knee import KneeDoubt
from hbatune.probe.result import Doubt, Failure, Pattern, Skip
from hbatune.probe.verdict import Conclusion
from hbatune.probe.workloads import Hidden
from hbatune.search.tournament import End, Unjudged
from hbatune.shipped import find_message, load_texts
from hbatune.watch.alerts import AlertCondition
from hbatune.watch.causes import LatencyCause, Stage

MEASURED = (Skip, Failure, Doubt, KneeDoubt, Headroom, Bottleneck, Hidden, Stale, Pattern)
ENUMERATIONS = (
    *MEASURED,
    Conclusion,
    LatencyCause,
    Stage,
    StallCause,
    HostState,
    ReadFailure,
    FactKind,
    End,
    Unjudged,
    ExitCode,
)
VALUES = {"alerts", "columns", "csv", "fact_source", "figures", "kernel_change", "open_change"}
VALUES |= {"unset_setting", "fact_name"}
SENTENCES = {
    "audit",
    "audit_metrics",
    "capture",
    "daemon",
    "host_problem",
    "measured",
    "plan",
    "probe",
    "replay",
    "rule_changes",
    "search",
    "sizing",
    "stall",
    "verdict",
    "watch_keys",
    "why",
}
OTHER_TABLES = VALUES | SENTENCES


@pytest.mark.parametrize("enumeration", ENUMERATIONS)
def test_each_member_has_message(enumeration: type[Enum]) -> None:
    messages = load_texts("messages.toml")[enumeration.__name__]
    assert set(messages) == {member.name for member in enumeration}
    for member in enumeration:
        assert find_message(member) == messages[member.name] != ""


def test_each_table_has_enumeration() -> None:
    tables = {enumeration.__name__ for enumeration in ENUMERATIONS}
    assert set(load_texts("messages.toml")) == tables | OTHER_TABLES


def test_each_problem_has_text() -> None:
    texts = load_texts("messages.toml")
    assert set(texts["stall"]) == set(StallCause)
    assert {HostState.OK, *texts["host_problem"]} == set(HostState)


def test_each_alert_has_texts() -> None:
    alerts = load_texts("messages.toml")["alerts"]
    assert set(alerts) == set(AlertCondition)
    for texts in alerts.values():
        assert {"raised", "end"} <= set(texts)
