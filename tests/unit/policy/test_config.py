"""The site's configuration: defaults, and mistakes told like those in rules."""

import subprocess
import sys

import msgspec
import pytest

from hbatune.cli import main
from hbatune.policy.config import (
    ApprovedVersions,
    Config,
    LimitScope,
    SiteAdapter,
    load_config,
    load_configuration,
    with_profile,
)
from hbatune.policy.toml_files import PolicyError
from tests.unit.site_folder import SiteFolder


def test_missing_file_means_defaults(site: SiteFolder) -> None:
    config = load_config(site.library)
    assert config == Config()
    assert (config.profile, config.act.deadline_seconds, config.act.workers) == (None, 10, 16)
    assert config.act.memory_share == 0.05


def test_written_values_override_defaults(site: SiteFolder) -> None:
    site.put(
        "hbatune.toml",
        'profile = "oltp"\n[act]\ndeadline_seconds = 2\n'
        '[site]\nexclude = ["sda", "0000:01:00.0"]\n',
    )
    config = load_config(site.library)
    assert (config.profile, config.act.deadline_seconds) == ("oltp", 2.0)
    assert config.site.exclude == ("sda", "0000:01:00.0")
    assert config.act.workers == 16


def test_removed_keys_are_ignored(site: SiteFolder) -> None:
    removed = "probe = false\nprobe_shared = true\nprobe_seconds = 60\n"
    listen = '[metrics]\nlisten = "127.0.0.1:9925"\n'
    watch = "[watch]\nlatency_seconds = 5\nlatency_keys = 4096\n"
    site.put("hbatune.toml", f"[daemon]\naudit_seconds = 60\n{removed}{listen}{watch}")
    assert load_configuration().daemon.audit_seconds == 60
    assert main(["config", "check"]) == 0
    site.put("hbatune.toml", f"[daemon]\n{listen}[site]\nprobe = true\n")
    assert main(["config", "check"]) == 2


def test_firmware_is_opened_by_adapter(site: SiteFolder) -> None:
    site.put("hbatune.toml", '[site.adapter."0000:03:00.0"]\nfirmware = "read"\n')
    assert load_config(site.library).site.adapter == {"0000:03:00.0": SiteAdapter("read")}
    site.put("hbatune.toml", '[site.adapter."0000:03:00.0"]\nfirmware = "write"\n')
    with pytest.raises(PolicyError, match='found "write", expected read or set'):
        load_config(site.library)


def test_approved_versions_name_family(site: SiteFolder) -> None:
    site.put("hbatune.toml", '[[site.approved]]\nfamily = "mpt3sas"\nfirmware = ["24.*"]\n')
    [approved] = load_config(site.library).site.approved
    assert approved == ApprovedVersions("mpt3sas", product="*", firmware=("24.*",), driver=())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[site.approved]]\nfirmware = ['1']", "table [site]: key `family`: found none"),
        ("[[site.approved]]\nfamily = 'x'\nfirmwares = ['1']", 'unknown key "firmwares"'),
        ("[act]\nworkers = 0", "line 2: table [act]: key `workers`: found 0, expected an integer"),
        ("[act]\nworkers = 65", "found 65, expected an integer from 1 to 64"),
        ("[act]\ndeadline_seconds = 'x'", 'found "x", expected a number from 0.1 to 3600'),
        ("[act]\nmemory_share = 1.5", "key `memory_share`: found 1.5, expected a number above 0"),
        ("[watch]\ncpu = 2", "key `cpu`: found 2, expected a number above 0 and below 1"),
        ("[act]\nmemory_share = nan", "key `memory_share`: found nan"),
        ("[act]\nworker = 3", 'unknown key "worker", expected deadline_seconds, workers'),
        ("[sight]", 'line 1: unknown key "sight", expected profile, act, probe, watch'),
        ("act = 3", "line 1: key `act`: found 3, expected a table with deadline_seconds"),
        ("[site]\nexclude = 'sda'", 'key `exclude`: found "sda", expected a list'),
        ("[site]\nexclude = ['sda', '']", 'key `exclude`: found "", expected 1 to 4096 characters'),
        ("profile = ''", 'line 1: key `profile`: found "", expected a name'),
        ("profile = '../x'", "key `profile`"),
    ],
)
def test_config_error_names_place(site: SiteFolder, text: str, message: str) -> None:
    path = site.put("hbatune.toml", text)
    with pytest.raises(PolicyError) as caught:
        load_config(site.library)
    assert message in caught.value.message
    assert caught.value.message.startswith(f"{path}: ")


@pytest.mark.parametrize(
    "text",
    ["", "# ours\n[act]\nworkers = 3 # few\n", 'profile = "latency" # x\n[site]\nexclude = []\n'],
)
def test_with_profile_preserves_remaining_text(site: SiteFolder, text: str) -> None:
    site.put("hbatune.toml", text)
    before = load_config(site.library)
    site.put("hbatune.toml", with_profile(text, "oltp"))
    after = load_config(site.library)
    assert after == msgspec.structs.replace(before, profile="oltp")
    site.put("hbatune.toml", with_profile(with_profile(text, "oltp"), None))
    assert load_config(site.library) == msgspec.structs.replace(before, profile=None)
    for line in text.splitlines():
        assert line.startswith("profile") or line in with_profile(text, "oltp")


def test_unchanged_profile_imports_no_tomlkit() -> None:
    text = "# ours\nprofile = 'oltp'  # since May\n"
    words = (
        "import sys; from hbatune.policy.config import with_profile; "
        f"print(with_profile({text!r}, 'oltp') == {text!r}, 'tomlkit' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", words], stdout=subprocess.PIPE, check=True)
    assert done.stdout.split() == [b"True", b"False"]


def test_site_arrays_and_members_load(site: SiteFolder) -> None:
    site.put(
        "hbatune.toml",
        '[[site.array]]\nname = "db"\nhosts = 4\nport_limit = 1600\ncounting = "lun"\n'
        'vendor = "DGC"\n[site.members]\n"wwn-0x1" = 5\n',
    )
    config_site = load_config(site.library).site
    assert [(a.name, a.hosts, a.port_limit, a.counting) for a in config_site.array] == [
        ("db", 4, 1600, LimitScope.LUN)
    ]
    assert config_site.members == {"wwn-0x1": 5}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[site.array]]\nname = "db"\nhosts = 0', "found 0, expected an integer from 1 to 4096"),
        ('[[site.array]]\nname = "db"', "key `hosts`: found none"),
        ('[[site.array]]\nname = "db"\nhosts = 1\ncounting = "disk"', "expected target or lun"),
        (
            "[site.members]\nsda = 0",
            "line 2: table [site]: key `sda`: found 0, expected an integer from 1 to 256",
        ),
        ("[site.members]\n'' = 1", "found a table, expected a table, each value an integer from 1"),
        ('[[site.array]]\nname = "db"\nhosts = 1\nlimit = 1', 'unknown key "limit"'),
    ],
)
def test_site_fact_error_is_reported(site: SiteFolder, text: str, message: str) -> None:
    site.put("hbatune.toml", text)
    with pytest.raises(PolicyError) as raised:
        load_config(site.library)
    assert message in raised.value.message


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('profile = "oltp"\n\n[daemon.drift_of]\nnomerges = "ignore"\nquue_depth = "report"\n', 5),
        ('[daemon]\ndrift_of = { quue_depth = "report" }\n', 2),
        ('[daemon]\n\ndrift_of.quue_depth = "report"\n', 3),
    ],
)
def test_unknown_drift_setting_suggests_name(site: SiteFolder, text: str, line: int) -> None:
    path = site.put("hbatune.toml", text)
    with pytest.raises(PolicyError) as raised:
        load_config(site.library)
    start = f'{path}: line {line}: table [daemon.drift_of]: unknown setting "quue_depth"'
    assert raised.value.message.startswith(start)
    assert raised.value.remedy == 'did you mean "queue_depth"?'
    assert raised.value.hint == f"{raised.value.remedy} `hbatune config check` shows all errors"
