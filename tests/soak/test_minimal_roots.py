"""The package on minimal roots of Debian 12 and 13: built there, installed offline, and gone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts import interrupts
from tests.hosts.tree import build
from tests.soak.kept import save_results
from tests.soak.roots import Root, clean_checkout

_BUILD = """
apt-get update
apt-get install --yes --no-install-recommends git make python3-venv ca-certificates
git config --global --add safe.directory /root/hbatune
cd /root/hbatune
make deb
"""
_FETCH = "apt-get update; apt-get install --yes --download-only /root/hbatune_*.deb"
_INSTALL = "apt-get install --yes /root/hbatune_*.deb"
_COMPLETE = """
. /usr/share/bash-completion/bash_completion
_completion_loader hbatune || true  # 124 says that it was found
COMP_WORDS=(hbatune di) COMP_CWORD=1 COMP_LINE="hbatune di" COMP_POINT=10
$(complete -p hbatune | sed 's/.*-F \\([^ ]*\\).*/\\1/') hbatune di hbatune
echo "${COMPREPLY[@]}"
"""
# apt keeps packages, and man the pages that were read.
_LEFT = """
find / -xdev -name '*hbatune*' -not -path '/root/*' -not -regex '/var/cache/\\(apt\\|man\\)/.*'
dpkg-query --show --showformat '${db:Status-Abbrev}${Package}\\n' | grep hbatune || true
"""
SUITES = ("bookworm", "trixie")
FOUND: dict[str, dict[str, str | int]] = {}


@pytest.fixture(scope="module", autouse=True)
def results() -> Iterator[None]:
    """Keep what there was of each release, once all were there."""
    yield
    if FOUND.keys() == {*SUITES}:
        save_results(
            "the package built by make deb and installed on minimal roots, offline but for "
            "Debian's own packages; its architecture and size, and what it brought with it",
            name="minimal-roots",
            releases=FOUND,
        )


@pytest.mark.parametrize("suite", SUITES)
def test_package_installs_on_minimal_debian(suite: str, tmp_path: Path) -> None:
    machine = tmp_path / "machine"
    build(interrupts.two_nodes(), machine)
    builder = Root(suite, tmp_path / "builder", machine)
    builder.let_out()
    builder.put(clean_checkout(tmp_path), "root/hbatune")
    builder.bash(_BUILD, online=True)
    [package] = builder.has("root/hbatune/dist/hbatune_*.deb")

    root = Root(suite, tmp_path / "root", machine)
    root.let_out()
    root.put(package, f"root/{package.name}")
    root.bash(_FETCH, online=True)
    installed = root.bash(_INSTALL)

    planned = root.bash("hbatune diff --profile oltp irq50 && exit 1 || test $? -eq 1")
    assert "irq50" in planned
    assert "irq_affinity" in planned
    assert "hbatune(8)" in root.bash("man --pager=cat hbatune | col -b").lower()
    assert root.bash(_COMPLETE).split() == ["diff"]
    root.bash("hbatune apply --profile oltp --no-probe irq50")
    place = machine / "proc/irq/50/smp_affinity_list"
    assert place.read_text().strip() == "0"

    root.bash("apt-get purge --yes hbatune")
    assert place.read_text().strip() == "5", "a removal puts every value back"
    assert root.bash(_LEFT) == ""

    FOUND[suite] = {
        "package": package.name,
        "KiB": package.stat().st_size // 1024,
        "packages": installed.count("\nSetting up "),
    }
