"""The sentences of limits."""

import msgspec
import pytest

from hbatune.facts.model import CpuRestriction
from hbatune.text.limit_text import Limit, LimitReason, describe_limit, explain_limit


@pytest.mark.parametrize("limit", Limit)
def test_every_reason_has_sentence(limit: Limit) -> None:
    facts = tuple(f"fact{number}" for number in range(limit.count("{")))
    part = LimitReason(Limit.MASK_NARROWED, ("7",))
    alone = describe_limit(LimitReason(limit, facts))
    combined = describe_limit(LimitReason(limit, facts, (part,)))
    assert all(str(fact) in alone for fact in facts)
    assert alone.strip()
    assert "{" not in alone + combined
    assert combined.endswith("its smp_affinity was narrowed to CPUs 7")


def test_reason_without_fact_fails() -> None:
    with pytest.raises(IndexError):
        describe_limit(LimitReason(Limit.TAG_SET))


def test_remedy_is_separate() -> None:
    inferred = (LimitReason(Limit.INFERRED),)
    reason = LimitReason(Limit.MANAGED, ("2-3", "smp_affinity_enable=0"), inferred)
    sentence, remedy = explain_limit(reason)
    assert sentence == "set by the kernel (managed interrupt)"
    assert remedy == (
        "to free the excluded CPUs, boot with isolcpus=managed_irq,2-3 or load the driver with "
        "smp_affinity_enable=0; inferred from driver and vector name: this kernel "
        "reports it only at a write"
    )
    assert describe_limit(reason) == f"{sentence}; {remedy}"
    assert explain_limit(LimitReason(Limit.ZONED)) == ("zoned", "")


def test_parts_follow_their_reason() -> None:
    cpus = LimitReason(Limit.CPUS_EXCLUDED, (CpuRestriction.IRQAFFINITY, "0-3"))
    banned = LimitReason(Limit.CPUS_UNKNOWN, (CpuRestriction.BANNED,))
    tail = "irqaffinity= excludes CPUs 0-3; irqbalance's ban makes no sense or excludes every CPU"
    for limit, head in (
        (Limit.ALTHOUGH, "although "),
        (Limit.NO_CPU_LEFT, "no CPU is left for interrupts: "),
        (Limit.ONE_CPU, "one CPU for each vector; "),
    ):
        assert describe_limit(LimitReason(limit, parts=(cpus, banned))) == head + tail


def test_other_texts_stay_unchanged() -> None:
    assert describe_limit("Invalid Field {} in Command") == "Invalid Field {} in Command"
    assert describe_limit(None) == ""


def test_reason_survives_msgpack() -> None:
    reason = LimitReason(Limit.READ_ONLY, (), (LimitReason(Limit.BY_OPTION, ("depth", 3)),))
    data = msgspec.msgpack.encode(reason)
    assert msgspec.msgpack.decode(data, type=LimitReason | str | None) == reason
