"""The container image: its archive, and the program that it starts."""

import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from hbatune import __version__
from tools import oci
from tools.wheel import CHECKOUT, BuildError

pytestmark = pytest.mark.skipif(shutil.which("dpkg") is None, reason="needs Debian's dpkg")

SCRIPT = (CHECKOUT / "packaging/oci/entrypoint").read_text()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with one file, in place of the one that mmdebstrap makes."""
    (tmp_path / "greeting").write_text("hello\n")
    with tarfile.open(tmp_path / "root.tar", "w") as archive:
        archive.add(tmp_path / "greeting", "etc/greeting")
    return tmp_path / "root.tar"


class Layout:
    """An image as a tool of containers reads it: by digests, starting at index.json."""

    def __init__(self, image: Path) -> None:
        with tarfile.open(image) as archive:
            files = {member.name: archive.extractfile(member) for member in archive}
            self.files = {name: file.read() for name, file in files.items() if file is not None}
        self.read: set[str] = {"index.json", "oci-layout"}

    def blob(self, descriptor: dict[str, Any]) -> bytes:
        """Return the content that a descriptor describes."""
        algorithm, _, digest = descriptor["digest"].partition(":")
        name = f"blobs/{algorithm}/{digest}"
        self.read.add(name)
        content = self.files[name]
        assert hashlib.sha256(content).hexdigest() == digest
        assert len(content) == descriptor["size"]
        return content


def test_image_is_a_complete_layout(root: Path, tmp_path: Path) -> None:
    oci.write_image(root, tmp_path / "image.tar")
    layout = Layout(tmp_path / "image.tar")
    assert json.loads(layout.files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    [listed] = json.loads(layout.files["index.json"])["manifests"]
    name = listed["annotations"]["org.opencontainers.image.ref.name"]
    assert name.startswith(f"localhost/hbatune:{__version__}")
    assert re.fullmatch(r".*:[\w.-]+", name), "a tag has neither plus sign nor tilde"

    manifest = json.loads(layout.blob(listed))
    assert manifest["mediaType"] == listed["mediaType"]
    [layer] = manifest["layers"]
    unpacked = gzip.decompress(layout.blob(layer))
    assert unpacked == root.read_bytes()

    config = json.loads(layout.blob(manifest["config"]))
    [diff_id] = config["rootfs"]["diff_ids"]
    assert diff_id == f"sha256:{hashlib.sha256(unpacked).hexdigest()}"
    assert config["config"]["Entrypoint"] == [oci.ENTRYPOINT]
    assert config["os"] == "linux"
    assert layout.read == layout.files.keys(), "nothing is in it that nothing names"


def test_same_root_is_the_same_image(root: Path, tmp_path: Path) -> None:
    oci.write_image(root, tmp_path / "one.tar")
    os.utime(root, (0, 0))
    oci.write_image(root, tmp_path / "two.tar")
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()


def test_build_needs_one_package(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="run `make deb`"):
        oci.build(tmp_path)


def started(folder: Path, *words: str, configuration: str | None = None) -> list[str]:
    """Return the words that the image's program gives to hbatune; its /run is in ``folder``."""
    command = folder / "hbatune"
    command.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    command.chmod(0o755)
    environment = {"PATH": f"{folder}:/usr/bin:/bin"}
    if configuration is not None:
        environment["HBATUNE_CONFIG"] = configuration
    done = subprocess.run(
        ["sh", "-c", SCRIPT.replace("/run/", f"{folder}/run/"), "sh", *words],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        umask=0o007,
    )
    return done.stdout.splitlines()


def test_environment_configures_the_daemon(tmp_path: Path) -> None:
    written = tmp_path / "run/hbatune/site/hbatune.toml"
    for text in ('profile = "oltp"', 'profile = "latency"\n[daemon]\nrollback_on_stop = true'):
        assert started(tmp_path, "daemon", configuration=text) == ["daemon"]
        assert written.read_text() == f"{text}\n"
    # hbatune refuses a file that others can write, and other users' commands read it.
    assert [path.stat().st_mode & 0o777 for path in (written, written.parent)] == [0o644, 0o755]
    assert list(written.parent.iterdir()) == [written]


def test_command_keeps_the_daemons_configuration(tmp_path: Path) -> None:
    words = ["explain", "sda", "a word"]
    assert started(tmp_path, *words, configuration='profile = "latency"') == words
    assert started(tmp_path, "daemon") == ["daemon"]
    assert not (tmp_path / "run").exists()
