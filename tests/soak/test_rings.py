"""The rings of the pure tests and of described machines, from clones on minimal Debian 12 roots."""

import re
import shlex
from pathlib import Path

import pytest

from tests.hosts import interrupts
from tests.hosts.tree import build
from tests.soak.kept import save_results
from tests.soak.roots import Root, clean_checkout

NEEDED = "git make python3-venv ca-certificates"
COMPANIONS = "python3-systemd tuned irqbalance bpftrace multipath-tools zsh fish"
"""Packages that hbatune may meet. They must not change what a test sees."""
PLACES = {"/root/clone": "", "/tmp/clone": COMPANIONS, "/srv/my clone": COMPANIONS}
"""The directories of the clones in a root, with the additional packages."""


@pytest.mark.parametrize("place", PLACES)
def test_rings_pass_in_a_clone(place: str, tmp_path: Path) -> None:
    machine = tmp_path / "machine"
    build(interrupts.two_nodes(), machine)
    root = Root("bookworm", tmp_path / "root", machine)
    root.let_out()
    root.put(clean_checkout(tmp_path), "root/hbatune")
    clone = shlex.quote(place)
    printed = root.bash(
        f"apt-get update\n"
        f"apt-get install --yes --no-install-recommends {NEEDED} {PLACES[place]}\n"
        f"git config --global --add safe.directory '*'\n"
        f"git clone --quiet /root/hbatune {clone}\n"
        f"cd {clone}\n"
        f"make -k unit hosts 2>&1",
        online=True,
    )
    summaries = re.findall(r"^=+ (\d+ passed.*) in [\d.]+s.*$", printed, re.MULTILINE)
    assert len(summaries) == 2, printed
    save_results(
        f"`make unit` and `make hosts` in {place} on a minimal Debian 12 root",
        name=f"rings-{place.split('/')[1]}",
        packages=PLACES[place].split(),
        unit=summaries[0],
        hosts=summaries[1],
    )
