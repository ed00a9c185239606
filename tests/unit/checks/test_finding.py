"""The texts of evidence: facts in braces, parts that need a fact, and the choice of the advice."""

import pytest
from msgspec import UNSET, UnsetType

from hbatune.checks import finding
from hbatune.checks.finding import CheckEvidence

TEXTS = {
    "SampleEvidence": {
        "description": "[site] {errors}[ of {done}] failed[; on {disks} and {done}]",
        "advice": "look at {target}[, as root, who may read the {denied}]",
    },
    "PreferredAdvice": {
        "advice": ["replace {disk}[ soon: {reason}]", "check {card} of {target}", "no action"],
    },
}


@pytest.fixture(autouse=True)
def _sample_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the shipped texts of findings."""
    monkeypatch.setattr(finding, "load_texts", {"findings.toml": TEXTS}.__getitem__)


class _SampleEvidence(CheckEvidence, frozen=True):
    errors: int
    done: int | None
    disks: tuple[str, ...] = ()
    denied: str | UnsetType = UNSET


@pytest.mark.parametrize(
    ("evidence", "description", "advice"),
    [
        (_SampleEvidence(0, None), "[site] 0 failed", "look at sda"),
        (_SampleEvidence(1, 0), "[site] 1 of 0 failed", "look at sda"),
        (_SampleEvidence(1, None, ("sda",)), "[site] 1 failed", "look at sda"),
        (
            _SampleEvidence(1, 2, ("s[{x}]",), "log"),
            "[site] 1 of 2 failed; on s[{x}] and 2",
            "look at sda, as root, who may read the log",
        ),
    ],
)
def test_text_omits_parts_without_facts(
    evidence: CheckEvidence, description: str, advice: str
) -> None:
    assert evidence.describe() == description
    assert evidence.advise("sda") == advice


class _PreferredAdvice(CheckEvidence, frozen=True):
    disk: str | None = None
    reason: str | None = None
    card: str | UnsetType = UNSET


@pytest.mark.parametrize(
    ("evidence", "advice"),
    [
        (_PreferredAdvice("sda", None, "a card"), "replace sda"),
        (_PreferredAdvice("sda", "worn"), "replace sda soon: worn"),
        (_PreferredAdvice(None, "worn", "a card"), "check a card of sdb"),
        (_PreferredAdvice(), "no action"),
    ],
)
def test_first_advice_with_facts_applies(evidence: CheckEvidence, advice: str) -> None:
    assert evidence.advise("sdb") == advice
