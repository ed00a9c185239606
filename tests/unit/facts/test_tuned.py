"""The active profile of tuned: what it sets, by way of the profiles that it includes."""

from pathlib import Path

import pytest

from hbatune.facts import services, tuned
from hbatune.facts.health import TunedProfile
from hbatune.facts.model import Missing, Reason


@pytest.fixture
def etc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder for profiles that comes before another one."""
    monkeypatch.setattr(services, "TUNED_PROFILE", tmp_path / "active_profile")
    monkeypatch.setattr(tuned, "_FOLDERS", (tmp_path / "etc", tmp_path / "lib"))
    return tmp_path / "etc"


REALTIME = "[variables]\ninclude = {}\nisolated_cores = ${{isolated_cores}}\n"
SOCKETS = ((0, 1, 2), (4, 5, 6))


def put(folder: Path, name: str, text: str) -> Path:
    """Write a profile and make it the active one."""
    (folder / name).mkdir(parents=True)
    (folder / name / "tuned.conf").write_text(text)
    (folder.parent / "active_profile").write_text(f"{name}\n")
    return folder / name / "tuned.conf"


def writes() -> list[tuple[str, str]]:
    profile = tuned.read_tuned_profile()
    assert isinstance(profile, TunedProfile), profile
    return [(write.attribute, write.value) for write in profile.writes]


def test_profile_plugins_list_writes(etc: Path) -> None:
    file = put(
        etc,
        "ours",
        "[cpu]\ngovernor=performance\n"
        "[disk]\nreadahead = >4096 # at least\n"
        "[fast]\ntype=disk\ndevices=nvme*\nelevator=none\n"
        "[sysfs]\n/sys/block/sd*/queue/nr_requests=64\n"
        "[off]\ntype=disk\nenabled=false\nelevator=bfq\n",
    )
    assert writes() == [
        ("queue/read_ahead_kb", ">4096"),
        ("queue/scheduler", "none"),
        ("queue/nr_requests", "64"),
    ]
    profile = tuned.read_tuned_profile()
    assert isinstance(profile, TunedProfile)
    assert (profile.names, {write.file for write in profile.writes}) == ("ours", {str(file)})


def test_profile_includes_and_site_override(etc: Path) -> None:
    put(etc.parent / "lib", "base", "[disk]\nreadahead=1\nelevator=bfq\n")
    put(etc, "child", "[main]\ninclude=base\n[disk]\nreadahead=2\n")
    assert writes() == [("queue/read_ahead_kb", "2"), ("queue/scheduler", "bfq")]
    put(etc, "base", "[disk]\nelevator=none\n")
    put(etc, "alone", "[main]\ninclude=base\n[disk]\nreplace=1\nreadahead=3\n")
    assert writes() == [("queue/read_ahead_kb", "3")]
    (etc.parent / "active_profile").write_text("base child\n")
    assert writes() == [("queue/scheduler", "none"), ("queue/read_ahead_kb", "2")]


@pytest.mark.parametrize(
    "text",
    ["[main]\ninclude=none-such\n", "[main]\ninclude=../ours\n", "[main]\ninclude=ours\n", "a"],
)
def test_incomplete_profile_is_unreadable(etc: Path, text: str) -> None:
    put(etc, "ours", text)
    profile = tuned.read_tuned_profile()
    assert isinstance(profile, Missing)
    assert profile.reason is Reason.UNREADABLE
    assert profile.text


def test_missing_profile_is_absent(etc: Path) -> None:
    assert tuned.read_tuned_profile() == Missing(Reason.ABSENT)


@pytest.mark.parametrize("name", ["mssql", "oracle"])
def test_database_profile_inherits_readahead(etc: Path, name: str) -> None:
    put(etc.parent / "lib", "throughput-performance", "[disk]\nreadahead=>4096\n")
    put(etc.parent / "lib", name, "[main]\ninclude=throughput-performance\n[vm]\nx=1\n")
    assert writes() == [("queue/read_ahead_kb", ">4096")]


@pytest.mark.parametrize(
    ("profile", "variables", "cores"),
    [
        ("[variables]\nisolated_cores=2,4-5\n", "", (2, 4, 5)),
        ("[variables]\ninclude={}\n", "# cores\nisolated_cores = 6 # two\nother=1\n", (6,)),
        ("[variables]\ninclude={}\n", "isolated_cores=1\nisolated_cores=3\n", (3,)),
        ("[variables]\ninclude={}\n", "#isolated_cores=2\n", None),
        ("[variables]\nisolated_cores=\n", "", None),
        ("[variables]\nother=1\n", "", None),
        ("[disk]\nelevator=none\n", "", None),
        # The default of tuned's profile realtime, and a profile that overrides its file.
        (REALTIME, "isolated_cores=${f:calc_isolated_cores:1}\n", (1, 2, 5, 6)),
        (REALTIME, "isolated_cores=${f:calc_isolated_cores}\n", (1, 2, 5, 6)),
        (REALTIME, "isolated_cores=${f:calc_isolated_cores:2} # two\n", (2, 6)),
        (REALTIME, "isolated_cores=${f:calc_isolated_cores:0}\n", (0, 1, 2, 4, 5, 6)),
        (REALTIME, "isolated_cores=${f:calc_isolated_cores:9}\n", None),
        ("[variables]\ninclude={}\nisolated_cores=5\n", "isolated_cores=6\n", (5,)),
        ("[variables]\nisolated_cores=5\ninclude={}\n", "isolated_cores=6\n", (6,)),
        # Other functions and variables of tuned are unknown, and so are files that cannot be read.
        (REALTIME, "isolated_cores=${f:calc_isolated_cores:x}\n", ()),
        (REALTIME, "isolated_cores=${f:cpulist_online:1-2}\n", ()),
        (REALTIME, "isolated_cores=1,${others}\n", ()),
        (REALTIME, "", ()),
        ("[variables]\ninclude={}-none\n", "", ()),
        ("[main]\ninclude=none-such\n", "", ()),
    ],
)
def test_isolated_cores_are_read(
    etc: Path, profile: str, variables: str, cores: tuple[int, ...] | None
) -> None:
    file = etc.parent / "variables.conf"
    file.write_text(variables)
    put(etc, "desk", profile.format(file))
    assert tuned.read_isolated_cores(SOCKETS) == cores


def test_no_profile_isolates_no_cores(etc: Path) -> None:
    assert tuned.read_isolated_cores(SOCKETS) is None


def test_unknown_sockets_leave_cores_unknown(etc: Path) -> None:
    put(etc, "desk", "[variables]\nisolated_cores=${f:calc_isolated_cores}\n")
    assert tuned.read_isolated_cores({(0, 1), ()}) == ()


@pytest.mark.parametrize(
    ("text", "is_one_shot"),
    [("dynamic_tuning = 0\ndaemon = 0\n", True), ("daemon=1\n", False), ("# daemon = 0\n", False)],
)
def test_configuration_shows_one_shot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, is_one_shot: bool
) -> None:
    monkeypatch.setattr(tuned, "_CONFIGURATION", tmp_path / "tuned-main.conf")
    assert not tuned.is_one_shot()
    (tmp_path / "tuned-main.conf").write_text(text)
    assert tuned.is_one_shot() is is_one_shot
