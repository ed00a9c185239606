"""The texts that ship: each value has its text, and each text its value."""

from enum import Enum

import pytest

from hbatune.operations.context import Event, Task
from hbatune.probe.comparison import Headroom
from hbatune.probe.history import Bottleneck, Stale
from hbatune.probe.knee import KneeDoubt
from hbatune.probe.result import Doubt, Failure, Figures, Pattern, Skip
from hbatune.probe.workloads import Hidden
from hbatune.settings.table import SETTINGS
from hbatune.shipped import find_message, load_texts
from hbatune.watch.alerts import AlertCondition

ENUMERATIONS: tuple[type[Enum], ...] = (
    *(Skip, Failure, Doubt, KneeDoubt, Stale, Hidden, AlertCondition, Task, Event),
    *(Pattern, Headroom, Bottleneck),
)
OTHER_TABLES = {"kernel_change", "figure", "stopped_command", "unset_setting", "unrestored_setting"}
"""Tables whose keys are not members of an enumeration."""


@pytest.mark.parametrize("enumeration", ENUMERATIONS)
def test_each_member_has_message(enumeration: type[Enum]) -> None:
    messages = load_texts("messages.toml")[enumeration.__name__]
    assert set(messages) == {member.name for member in enumeration}
    for member in enumeration:
        assert find_message(member) == messages[member.name] != ""


def test_each_table_has_enumeration() -> None:
    tables = {enumeration.__name__ for enumeration in ENUMERATIONS}
    assert set(load_texts("messages.toml")) == tables | OTHER_TABLES


def test_each_figure_and_setting_is_real() -> None:
    texts = load_texts("messages.toml")
    assert set(texts["figure"]) <= set(Figures.__struct_fields__)
    assert set(texts["unrestored_setting"]) <= set(SETTINGS)
