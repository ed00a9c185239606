"""With an owner's rights, only what that owner alone can write is believed."""

import os
from pathlib import Path

import msgspec
import pytest

from hbatune.policy.config import load_config
from hbatune.policy.errors import PolicyError
from hbatune.policy.load import Library, installed_library, load_profile
from tests.unit.policy_site import CHECKS, SiteFolder


@pytest.fixture
def guarded(site: SiteFolder) -> Library:
    """Return a library that believes only files of the uid that runs the tests."""
    for path in (site.root, site.put("rules.d/x.toml", "").parent, site.root / "rules.d/x.toml"):
        path.chmod(0o755)
    return msgspec.structs.replace(site.library, owner=os.getuid())


def refused(library: Library, path: Path, said: str) -> None:
    with pytest.raises(PolicyError) as caught:
        load_profile("oltp", library, CHECKS)
    assert said in caught.value.message
    assert caught.value.file == str(path)


def test_a_file_of_the_owner_is_believed(guarded: Library) -> None:
    load_profile("oltp", guarded, CHECKS)


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o777])
@pytest.mark.parametrize("name", ["rules.d/x.toml", "rules.d", "."])
def test_what_others_may_write_is_refused(guarded: Library, name: str, mode: int) -> None:
    path = guarded.site / name
    path.chmod(mode | (0o100 if path.is_dir() else 0))
    refused(guarded, path, "expected none but its owner to have write access")


def test_what_others_own_is_refused(guarded: Library) -> None:
    other = msgspec.structs.replace(guarded, owner=os.getuid() + 1)
    refused(other, other.site / "rules.d/x.toml", f"belongs to uid {os.getuid()}")


def test_a_link_is_as_good_as_the_folder_it_leads_to(guarded: Library, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "y.toml").write_text("")
    (elsewhere / "y.toml").chmod(0o644)
    (guarded.site / "rules.d/x.toml").unlink()
    (guarded.site / "rules.d/x.toml").symlink_to(elsewhere / "y.toml")
    elsewhere.chmod(0o755)
    load_profile("oltp", guarded, CHECKS)
    elsewhere.chmod(0o777)
    refused(guarded, elsewhere, "mode 0777")


def test_the_configuration_is_guarded_too(guarded: Library) -> None:
    path = guarded.site / "hbatune.toml"
    path.write_text('profile = "oltp"\n')
    path.chmod(0o666)
    with pytest.raises(PolicyError, match="mode 0666"):
        load_config(guarded)


@pytest.mark.parametrize(("uid", "owner"), [(0, 0), (1000, None)])
def test_root_believes_root_alone(
    monkeypatch: pytest.MonkeyPatch, uid: int, owner: int | None
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    library = installed_library()
    assert library.owner == owner
    assert library.site == Path("/etc/hbatune")


def test_nothing_is_refused_where_nobody_asks(site: SiteFolder) -> None:
    site.put("rules.d/x.toml", "").chmod(0o666)
    site.load()
