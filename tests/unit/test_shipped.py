"""The texts of messages: each value has one text, and each text is for a value."""

from collections.abc import Collection, Iterable
from enum import Enum

import pytest

from hbatune.operations.context import Event, Task
from hbatune.plan.kernel_changes import ChangeKind
from hbatune.probe.history import Stale
from hbatune.probe.knee import KneeDoubt
from hbatune.probe.result import Doubt, Failure, Figures, Skip
from hbatune.probe.workloads import Hidden
from hbatune.settings.table import SETTINGS
from hbatune.shipped import load_texts
from hbatune.watch.alerts import AlertCondition

COMPLETE_TOPICS: dict[str, Iterable[Enum]] = {
    "event": Event,
    "skip": Skip,
    "failure": Failure,
    "stale": [stale for stale in Stale if stale is not Stale.GONE],
    "doubt": [doubt for doubt in Doubt if doubt is not Doubt.RATE],
    "knee_doubt": KneeDoubt,
    "unexercised": Hidden,
    "alert_end": AlertCondition,
}
"""The values of each topic that all need a text."""

DEFAULT_TOPICS: dict[str, Collection[str]] = {
    "task": [task.name.lower() for task in Task],
    "kernel_change": list(ChangeKind),
    "restore": SETTINGS,
    "figure": Figures.__struct_fields__,
}
"""The keys of each topic in which a key without a text is allowed."""


@pytest.mark.parametrize("topic", COMPLETE_TOPICS)
def test_each_value_has_its_text(topic: str) -> None:
    keys = [
        value.value if isinstance(value.value, str) else value.name.lower()
        for value in COMPLETE_TOPICS[topic]
    ]
    texts = load_texts("messages")[topic]
    assert list(texts) == keys
    assert len(set(texts.values())) == len(keys) or topic == "event"


@pytest.mark.parametrize("topic", DEFAULT_TOPICS)
def test_each_text_is_for_a_value(topic: str) -> None:
    assert set(load_texts("messages")[topic]) <= set(DEFAULT_TOPICS[topic])
