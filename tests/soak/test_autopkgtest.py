"""The package's own test, run by autopkgtest in a guest that is reached by ssh."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.fleet import FleetHost, fleet
from tests.lab.wheel import CHECKOUT
from tools import deb


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetHost]:
    with fleet(tmp_path_factory.mktemp("autopkgtest"), ["testbed"]) as [only]:
        yield only


@pytest.mark.skipif(
    shutil.which("autopkgtest") is None, reason="needs autopkgtest: .ci/packages soak installs it"
)
def test_installed_package_passes_autopkgtest(host: FleetHost, tmp_path: Path) -> None:
    source = tmp_path / "source"
    # Only the tests: autopkgtest would unpack a complete source package with dpkg-source, which a
    # guest without a network does not have. For the same reason the package is installed already.
    shutil.copytree(CHECKOUT / "debian/tests", source / "debian/tests")
    host.put(deb.build(tmp_path / "built"), "/root/hbatune.deb")
    host.ssh("dpkg --install /root/hbatune.deb")
    words = [
        # A guest is thrown away afterwards, which autopkgtest cannot know of a host by ssh.
        *("autopkgtest", "--ignore-restrictions=breaks-testbed", "--no-built-binaries"),
        *(f"{source}/", "--", "ssh", "--hostname", "127.0.0.1", "--port", str(host.port)),
        *("--login", "root", "--identity", str(host.key), "--capability", "isolation-machine"),
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "install-to-purge     PASS" in done.stdout
