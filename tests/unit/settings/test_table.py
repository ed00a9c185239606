"""The table of settings: what the kernel's files say, and what a rule may ask for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbatune.facts.attributes import ABSENT
from hbatune.facts.model import Attribute, Missing, Reason, TargetKind
from hbatune.settings.setting import (
    Device,
    FixedSetting,
    LegalValue,
    parse_choices,
    parse_selected,
    parse_selected_in_udev,
)
from hbatune.settings.table import (
    SETTINGS,
    Value,
    find_setting,
    find_target_kind,
    list_affected_settings,
    parse_saved_values,
)
from hbatune.text.limit_text import Limit, LimitReason
from tests.unit.machines import endpoint


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[none] mq-deadline ", "none"),  # 6.1
        ("none [mq-deadline] kyber ", "mq-deadline"),  # 6.12
        ("[mq-deadline] kyber none", "mq-deadline"),
        ("none", "none"),  # a bio-based device
    ],
)
def test_selected_scheduler_is_parsed(text: str, value: str) -> None:
    assert parse_selected(text) == value


@pytest.mark.parametrize("text", ["", "none mq-deadline", "[none] [kyber]", "[]", "[] none"])
def test_nonsense_scheduler_raises(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        parse_selected(text)


def test_bare_none_offers_no_choice() -> None:
    assert parse_choices("none") == ()
    assert parse_choices("[none] mq-deadline ") == ("none", "mq-deadline")


@pytest.mark.parametrize("text", ["", "12abc", "0x10", "none", "1 2"])
def test_nonsense_number_raises(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        SETTINGS["nr_requests"].format.parse(text)


@pytest.mark.parametrize(
    ("name", "attribute", "reading"),
    [
        ("nr_requests", Attribute("256", True), 256),
        ("nr_requests", Attribute("256", False), 256),
        ("scheduler", Attribute("[none] mq-deadline", True), "none"),
        ("nr_requests", None, ABSENT),
        ("nr_requests", Missing(Reason.UNREADABLE, 5), Missing(Reason.UNREADABLE, 5)),
        ("nr_requests", Missing(Reason.VANISHED, 19), Missing(Reason.VANISHED, 19)),
        ("nr_requests", Attribute("many", True), Missing(Reason.UNPARSABLE, text="many")),
        ("nr_requests", Attribute("", True), Missing(Reason.UNPARSABLE, text="")),
        ("scheduler", Attribute("none bfq", True), Missing(Reason.UNPARSABLE, text="none bfq")),
        ("irq_affinity", Attribute("3-1", True), Missing(Reason.UNPARSABLE, text="3-1")),
        ("zio", Attribute("maybe", True), Missing(Reason.UNPARSABLE, text="maybe")),
    ],
)
def test_unread_value_has_reason(
    name: str, attribute: Attribute | Missing | None, reading: Value | Missing
) -> None:
    attributes = {} if attribute is None else {SETTINGS[name].path: attribute}
    assert SETTINGS[name].read(attributes) == reading


def test_text_tunable_is_read() -> None:
    tunable = find_setting("queue/iosched/low_latency")
    assert tunable.read({tunable.path: Attribute("on", True)}) == "on"
    assert tunable.read({}) == ABSENT


@pytest.mark.parametrize(
    ("name", "value", "fine"),
    [
        ("nr_requests", 2048, True),
        ("nr_requests", 2049, False),
        ("nr_requests", 3, False),
        ("nr_requests", True, False),
        ("nr_requests", "2048", False),
        ("scheduler", "mq-deadline", True),
        ("scheduler", "noop", False),
        ("scheduler", "nonesuch", False),
        ("queue_depth", 0, False),
        ("queue_depth", 4096, True),
        ("rq_affinity", 3, False),
        ("wbt_lat_usec", -1, False),
        ("read_ahead_kb", 4096, True),
    ],
)
def test_disk_rules_are_checked(name: str, value: object, fine: bool) -> None:
    complaint = SETTINGS[name].format.check(value)
    assert (complaint is None) is fine
    if not fine:
        assert complaint == SETTINGS[name].format.allowed


def test_scheduler_precedes_read_ahead() -> None:
    on_disks = [name for name in SETTINGS if find_target_kind(name) is TargetKind.ENDPOINT]
    ordered = sorted(on_disks, key=lambda name: SETTINGS[name].order)
    assert ordered[:3] == ["scheduler", "queue_depth", "nr_requests"]
    assert ordered[-1] == "read_ahead_kb"


def test_reset_settings_follow_cause() -> None:
    for setting in SETTINGS.values():
        for name in setting.resets:
            assert find_setting(name + "x" if name.endswith("/") else name).order > setting.order


def test_scheduler_switch_disturbs_requests() -> None:
    assert {"scheduler", "nr_requests", "queue/iosched/"} <= set(
        list_affected_settings(["scheduler"])
    )
    assert "read_ahead_kb" in list_affected_settings(["add_random"])
    assert "read_ahead_kb" not in list_affected_settings(["nomerges"])


@given(st.integers(min_value=-(2**40), max_value=2**40))
def test_number_survives_round_trip(number: int) -> None:
    for setting in SETTINGS.values():
        if setting.format.allowed.startswith("an integer") and setting.name != "io_timeout":
            assert setting.format.parse(f"{setting.format.encode(number)}\n".strip()) == number


@pytest.mark.parametrize(
    ("name", "value", "fine"),
    [
        ("irq_affinity", "local", True),
        ("irq_affinity", "0-3,8", True),
        ("irq_affinity", "", False),
        ("irq_affinity", "3-1", False),
        ("irq_affinity", 3, False),
        ("coalescing", 0, True),
        ("coalescing", False, False),
        ("coalescing", "0", False),
        ("coalescing", "8/200", True),
        ("coalescing", "1/200", False),
        ("coalescing", "8/150", False),
        ("coalescing", "257/200", False),
        ("coalescing", "8", False),
        ("coalescing", 0x0107, False),
        ("zio_timer", 200, True),
        ("zio_timer", 99, False),
    ],
)
def test_adapter_rules_are_checked(name: str, value: object, fine: bool) -> None:
    assert (SETTINGS[name].format.check(value) is None) is fine


@given(st.integers(2, 256), st.integers(1, 255))
def test_coalescing_survives_round_trip(completions: int, time: int) -> None:
    setting = SETTINGS["coalescing"]
    value = f"{completions}/{time * 100}"
    assert setting.format.parse(setting.format.encode(value)) == value


@pytest.mark.parametrize("number", [0, 0x0100, 0x0007])
def test_zero_disables_coalescing(number: int) -> None:
    assert SETTINGS["coalescing"].format.parse(str(number)) == 0


def test_cpu_list_is_normalised() -> None:
    assert SETTINGS["irq_affinity"].format.parse("8,3,0-2\n") == "0-3,8"


def test_unit_suffix_is_dropped() -> None:
    assert SETTINGS["zio_timer"].format.parse("200 us") == 200


@pytest.mark.parametrize(
    ("name", "value", "fine"),
    [
        ("timeout", 60, True),
        ("timeout", 0, False),
        ("timeout", 2_147_484, False),
        ("io_timeout", 240_000, True),
        ("io_timeout", 240_001, False),
        ("io_timeout", 0, False),
        ("io_timeout", 4_294_967_295, True),
        ("io_timeout", 4_294_967_290, False),
        ("iopolicy", "queue-depth", True),
        ("iopolicy", "latency", False),
        ("ctrl_loss_tmo", -1, True),
        ("ctrl_loss_tmo", -2, False),
        ("ctrl_loss_tmo", 1 << 31, False),
        ("pm_qos_latency_tolerance_us", 0, True),
        ("pm_qos_latency_tolerance_us", "any", True),
        ("pm_qos_latency_tolerance_us", "never", False),
        ("pm_qos_latency_tolerance_us", -1, False),
        ("pm_qos_latency_tolerance_us", (1 << 31) - 1, False),  # the kernel's number for `any`
    ],
)
def test_time_rules_are_checked(name: str, value: object, fine: bool) -> None:
    complaint = SETTINGS[name].format.check(value)
    assert (complaint is None) is fine
    if not fine:
        assert complaint == SETTINGS[name].format.allowed


# As 6.1 and 6.12 show what was written, by the length of their ticks; and what a module's option of
# 4294967295 s makes of it.
@pytest.mark.parametrize("text", ["4294967288", "4294967294", "4294967276", "4294966296"])
def test_endless_timeout_is_normalised(text: str) -> None:
    assert SETTINGS["io_timeout"].format.parse(text) == 4_294_967_295
    assert SETTINGS["io_timeout"].format.encode(4_294_967_295) == "4294967295"


def test_endless_reconnect_is_off() -> None:
    setting = SETTINGS["ctrl_loss_tmo"]
    assert (
        setting.format.parse("off"),
        setting.format.parse("600"),
        setting.format.encode(-1),
    ) == (
        -1,
        600,
        "-1",
    )


@pytest.mark.parametrize("text", ["100000", "any", "auto"])
def test_latency_tolerance_survives_round_trip(text: str) -> None:
    setting = SETTINGS["pm_qos_latency_tolerance_us"]
    assert setting.format.encode(setting.format.parse(text)) == text


def limited(name: str, wanted: int, **files: str) -> LegalValue | FixedSetting:
    read = {path.replace("__", "/"): Attribute(text, True) for path, text in files.items()}
    return SETTINGS[name].limit(wanted, 0, Device(read))


def test_reconnect_time_fits_attempts() -> None:
    assert limited("ctrl_loss_tmo", 601, reconnect_delay="10") == LegalValue(
        610, LimitReason(Limit.WHOLE_ATTEMPTS, (10,))
    )
    assert limited("ctrl_loss_tmo", 600, reconnect_delay="10") == LegalValue(600)
    assert limited("ctrl_loss_tmo", -1, reconnect_delay="off") == LegalValue(-1)
    assert isinstance(limited("ctrl_loss_tmo", 600, reconnect_delay="off"), FixedSetting)


@pytest.mark.parametrize(
    ("file", "scheduler", "expected"),
    [
        ("queue/async_depth", "none", FixedSetting(LimitReason(Limit.UNSCHEDULED))),
        (
            "queue/async_depth",
            "mq-deadline",
            LegalValue(256, LimitReason(Limit.REQUESTS_MAXIMUM, (256,))),
        ),
        ("queue/iosched/async_depth", "mq-deadline", LegalValue(300)),  # before Linux 7.0
    ],
)
def test_async_depth_needs_scheduler(
    file: str, scheduler: str, expected: LegalValue | FixedSetting
) -> None:
    texts = {file: "192", "queue/nr_requests": "256", "queue/scheduler": f"[{scheduler}] kyber"}
    attributes = {path: Attribute(text, True) for path, text in texts.items()}
    device = Device(attributes, scheduler)
    assert SETTINGS["async_depth"].limit(300, 192, device) == expected


def test_scsi_disk_fixes_io_timeout() -> None:
    assert isinstance(limited("io_timeout", 60_000, device__timeout="30"), FixedSetting)
    assert limited("io_timeout", 60_000) == LegalValue(60_000)


def test_controller_owns_io_timeout() -> None:
    setting = SETTINGS["io_timeout"]
    files = ("queue/io_timeout", "device/io_timeout", "device/nvme0n1/queue/io_timeout")
    sibling = "device/nvme0n2/queue/io_timeout"
    alike = dict.fromkeys((*files, sibling), "30000")
    attributes = {path: Attribute(text, True) for path, text in alike.items()}
    assert setting.find_path(attributes) == "device/io_timeout"
    assert setting.limit(60_000, 30_000, Device(attributes)) == LegalValue(60_000)
    attributes[sibling] = Attribute("60000", True)  # the sibling's worker writes, or a rollback
    assert setting.limit(60_000, 30_000, Device(attributes)) == LegalValue(60_000)
    planned = setting.limit(60_000, 30_000, Device(attributes, endpoint=endpoint()))
    assert planned == FixedSetting(LimitReason(Limit.OWN_TIMEOUT, (60_000,))), "a rollback loses it"
    attributes[sibling] = Attribute("45000", True)
    limit = setting.limit(60_000, 30_000, Device(attributes))
    assert limit == FixedSetting(LimitReason(Limit.OWN_TIMEOUT, (45_000,)))
    del attributes["device/io_timeout"]  # before Linux 7.2
    assert setting.limit(60_000, 45_000, Device(attributes)) == LegalValue(60_000)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("none _mq-deadline_ kyber", "mq-deadline"),
        ("_none_ mq-deadline", "none"),
        ("none", "none"),
        ("none _my_own_ kyber", "my_own"),
        ("__odd__ none", "_odd_"),
    ],
)
def test_underscores_mark_selected_scheduler(text: str, name: str) -> None:
    assert parse_selected_in_udev(text) == name


@pytest.mark.parametrize("text", ["", "_a_ _b_", "none kyber", "_ none"])
def test_ambiguous_scheduler_is_dropped(text: str) -> None:
    assert parse_saved_values({"SCHEDULER": text}) == {}


def test_saved_values_are_typed() -> None:
    texts = {"SCHEDULER": "_none_ kyber", "NR_REQUESTS": "256", "QUEUE_DEPTH": "x", "NOSUCH": "1"}
    assert parse_saved_values(texts) == {"scheduler": "none", "nr_requests": 256}
