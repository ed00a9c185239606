"""A described machine for the Cockpit page, what hbatune says on it, and Debian's Cockpit there."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tests.hosts import hbas
from tests.hosts.namespace import OWN_CONFIGURATION, enter, run
from tests.hosts.parts import flat, sas, sata
from tests.hosts.tree import Described, Disk, Host, Lun

HBATUNE = [sys.executable, "-m", "tests.hosts.described_hbatune"]
CHECKOUT = Path(__file__).parents[2]
PAGE = CHECKOUT / "cockpit"

_DRIVER = """
import json, os, subprocess, sys
command, checkout, commands = json.load(sys.stdin)
os.environ["PYTHONPATH"] = checkout
answers = []
for words in commands:
    done = subprocess.run([*command, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    answers.append([words, done.returncode, done.stdout.decode()])
print(json.dumps(answers))
"""

Answers = dict[str, list[list[object]]]
"""The exit code and the output of each run of a command, in order, by its words."""


def server() -> Described:
    """Return a 9600-24i with twelve drives.

    New values are as long as the present ones, because a write to a plain file does not shorten it.
    """
    luns: list[Lun] = []
    for number in range(12):
        disk = Disk(f"sd{chr(97 + number)}", tags=8000, nr_requests=1024)
        if number % 3 == 0:
            nvme = replace(disk, scheduler="[none] mq-deadline ", nr_requests=8000)
            lun = flat(f"0:1:{number}:0", nvme, "NVMe", "100")
        elif number % 3 == 1:
            lun = sas(0, 8 + number, disk, depth="32")
        else:
            lun = sata(0, 8 + number, disk, depth="32")
        luns.append(replace(lun, wwid=f"naa.5000c500a1b2c3{number:02x}"))
    [function] = hbas.mpi3mr().functions
    [host] = function.hosts
    hosts: tuple[Host, ...] = (replace(host, luns=tuple(luns)),)
    return Described((replace(function, hosts=hosts, vectors=()),))


def record(root: Path, commands: Sequence[Sequence[str]]) -> Answers:
    """Run commands on the machine below ``root``, and return their outputs."""
    request = json.dumps([HBATUNE, str(CHECKOUT), commands])
    script = 'given=$1; shift; printf %s "$given" | "$@"'
    words = [*OWN_CONFIGURATION, "sh", "-c", script, "sh", request, sys.executable, "-c", _DRIVER]
    answers: Answers = {}
    for command, code, output in json.loads(run(root, words, timeout=300)):
        answers.setdefault(" ".join(command), []).append([code, output])
    return answers


COCKPIT = Path("/usr/lib/cockpit/cockpit-ws")

# Cockpit reads the user's name and shell. Its bridge finds the page and the command by these
# variables. Descriptor 3 is the socket, as of a unit of systemd (sd_listen_fds(3)).
_START_COCKPIT = """
mkdir -p /run/bin /run/share/cockpit /run/home || exit 77
echo root:x:0:0:root:/run/home:/bin/sh >/etc/passwd
echo root:x:0: >/etc/group
ln -s "$1/cockpit" /run/share/cockpit/hbatune
printf '#!/bin/sh\nPYTHONPATH="%s" exec "%s" -m tests.hosts.described_hbatune "$@"\n' \
    "$1" "$2" >/run/bin/hbatune
chmod 755 /run/bin/hbatune
export PATH="/run/bin:$PATH" HOME=/run/home XDG_DATA_DIRS=/run/share:/usr/share
export LISTEN_FDS=1 LISTEN_PID=$$
exec "$3" --no-tls --local-session=cockpit-bridge
"""


@contextmanager
def open_cockpit(root: Path) -> Iterator[str]:
    """Run Debian's Cockpit on the machine below ``root``, as root; yield the page's address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        arguments = [str(CHECKOUT), sys.executable, str(COCKPIT)]
        words, environment = enter(
            root, [*OWN_CONFIGURATION, "sh", "-c", _START_COCKPIT, "sh", *arguments]
        )
        server = subprocess.Popen(
            words,
            env=environment,
            preexec_fn=lambda: os.dup2(listening.fileno(), 3),
            pass_fds=(3,),
            stdin=subprocess.DEVNULL,
        )
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/cockpit/@localhost/hbatune/index.html"
        finally:
            server.terminate()
            server.wait(60)
