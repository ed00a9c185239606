"""With an owner's rights, only what that owner alone can write is believed."""

import os
from pathlib import Path

import msgspec
import pytest

from hbatune.policy.config import load_config
from hbatune.policy.library import Library, installed_library, load_profile
from hbatune.policy.toml_files import PolicyError, resolve_links
from tests.unit.site_folder import SiteFolder


@pytest.fixture
def guarded(site: SiteFolder, tmp_path: Path) -> Library:
    """Return a library that believes only files of the uid that runs the tests.

    Folders above that of the test are taken as they are: /tmp, for one, is not trusted.
    """
    for path in (site.root, site.put("rules.d/x.toml", "").parent, site.root / "rules.d/x.toml"):
        path.chmod(0o755)
    return msgspec.structs.replace(site.library, owner=os.getuid(), top=tmp_path)


def refused(library: Library, path: Path, said: str) -> None:
    with pytest.raises(PolicyError) as caught:
        load_profile("oltp", library)
    assert said in caught.value.message
    assert caught.value.message.startswith(f"{path}: ")


def test_owner_file_is_trusted(guarded: Library) -> None:
    load_profile("oltp", guarded)


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o777])
@pytest.mark.parametrize("name", ["rules.d/x.toml", "rules.d", "."])
def test_writable_file_is_refused(guarded: Library, name: str, mode: int) -> None:
    path = guarded.site / name
    path.chmod(mode | (0o100 if path.is_dir() else 0))
    refused(guarded, path, "expected none but its owner to have write access")


def test_foreign_file_is_refused(guarded: Library) -> None:
    other = msgspec.structs.replace(guarded, owner=os.getuid() + 1)
    refused(other, other.site / "rules.d/x.toml", f"belongs to uid {os.getuid()}")


def test_link_target_folder_is_checked(guarded: Library, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "y.toml").write_text("")
    (elsewhere / "y.toml").chmod(0o644)
    (guarded.site / "rules.d/x.toml").unlink()
    (guarded.site / "rules.d/x.toml").symlink_to(elsewhere / "y.toml")
    elsewhere.chmod(0o755)
    load_profile("oltp", guarded)
    elsewhere.chmod(0o777)
    refused(guarded, elsewhere, "mode 0777")


def test_configuration_permissions_are_checked(guarded: Library) -> None:
    path = guarded.site / "hbatune.toml"
    path.write_text('profile = "oltp"\n')
    path.chmod(0o666)
    with pytest.raises(PolicyError, match="mode 0666"):
        load_config(guarded)


@pytest.mark.parametrize(("uid", "owner"), [(0, 0), (1000, None)])
def test_root_trusts_only_root(
    monkeypatch: pytest.MonkeyPatch, uid: int, owner: int | None
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    library = installed_library()
    assert library.owner == owner
    assert library.site == Path("/etc/hbatune")


def test_unguarded_library_trusts_all(site: SiteFolder) -> None:
    site.put("rules.d/x.toml", "").chmod(0o666)
    site.load()


def test_parent_folders_are_checked(guarded: Library, tmp_path: Path) -> None:
    above = tmp_path / "above"
    above.mkdir(mode=0o755)
    moved = guarded.site.rename(above / "etc")
    library = msgspec.structs.replace(guarded, site=moved)
    load_profile("oltp", library)
    above.chmod(0o777)
    refused(library, above, "mode 0777")


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_writable_folder_link_is_refused(guarded: Library, tmp_path: Path, mode: int) -> None:
    """The folder that the link leads to is the owner's, but others may put another in its place."""
    shared = tmp_path / "shared"
    target = shared / "rules.d"
    target.mkdir(parents=True)
    (target / "y.toml").write_text("")
    for path in (shared, target, target / "y.toml"):
        path.chmod(0o755)
    (guarded.site / "rules.d/x.toml").unlink()
    (guarded.site / "rules.d").rmdir()
    (guarded.site / "rules.d").symlink_to(target)
    load_profile("oltp", guarded)
    shared.chmod(mode)
    refused(guarded, shared, f"mode {mode:04o}")


def test_intermediate_folder_is_checked(guarded: Library, tmp_path: Path) -> None:
    shared, home = tmp_path / "shared", tmp_path / "home"
    for folder in (shared, home):
        folder.mkdir(mode=0o755)
    (home / "y.toml").write_text("")
    (home / "y.toml").chmod(0o644)
    (shared / "link").symlink_to("../home")
    (guarded.site / "rules.d/x.toml").unlink()
    (guarded.site / "rules.d/x.toml").symlink_to("../../shared/link/y.toml")
    load_profile("oltp", guarded)
    shared.chmod(0o1777)
    refused(guarded, shared, "mode 1777")


def test_image_links_resolve_inside_image(tmp_path: Path) -> None:
    (tmp_path / "opt/bin").mkdir(parents=True)
    (tmp_path / "usr").mkdir()
    (tmp_path / "usr/bin").symlink_to("/opt/../../opt/bin")
    (tmp_path / "opt/bin/run").symlink_to("tool")
    way = resolve_links(Path("/usr/bin/run"), tmp_path)
    assert way.end == tmp_path / "opt/bin/tool"
    assert way.folders == tuple(tmp_path / each for each in ("", "usr", "opt", "opt/bin"))


def test_circular_links_terminate(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match=r"[Tt]oo many"):
        resolve_links(tmp_path / "a")
