"""The sentences of limits."""

import msgspec
import pytest

from hbatune.settings.setting import Limit, LimitReason
from hbatune.text.limit_text import _SENTENCES, describe_limit, explain_limit


@pytest.mark.parametrize("limit", Limit)
def test_every_reason_has_sentence(limit: Limit) -> None:
    facts = tuple(f"fact{number}" for number in range(_SENTENCES[limit].count("{")))
    part = LimitReason(Limit.BANNED, ("7",))
    alone = describe_limit(LimitReason(limit, facts))
    combined = describe_limit(LimitReason(limit, facts, (part,)))
    assert all(str(fact) in alone for fact in facts)
    assert alone.strip()
    assert "{" not in alone + combined
    assert combined.endswith("CPUs 7 are banned in irqbalance's settings")


def test_reason_without_fact_fails() -> None:
    with pytest.raises(IndexError):
        describe_limit(LimitReason(Limit.TAG_SET))


def test_remedy_is_separate() -> None:
    inferred = (LimitReason(Limit.INFERRED),)
    reason = LimitReason(Limit.MANAGED, ("smp_affinity_enable=0",), inferred)
    sentence, remedy = explain_limit(reason)
    assert sentence == "set by the kernel (managed interrupt)"
    assert remedy == (
        "to change it, boot with isolcpus=managed_irq,… or load the driver with "
        "smp_affinity_enable=0; inferred from the driver and the vector's name: this kernel says "
        "so only at a write"
    )
    assert describe_limit(reason) == f"{sentence}; {remedy}"
    assert explain_limit(LimitReason(Limit.ZONED)) == ("zoned", "")


def test_parts_follow_their_reason() -> None:
    cpus = LimitReason(Limit.IRQAFFINITY, ("0-3",))
    banned = LimitReason(Limit.BANNED, ("4",))
    tail = (
        "irqaffinity=0-3 on the kernel's command line; CPUs 4 are banned in irqbalance's settings"
    )
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
