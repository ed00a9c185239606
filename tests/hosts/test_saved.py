"""What udev's rules saved is found in udev's own database, of few disks as of many."""

import sys
from pathlib import Path

import msgspec
import pytest

from tests.hosts.machines import build_many_luns
from tests.hosts.namespace import can_enter, run
from tests.hosts.tree import build
from tests.lab.wheel import CHECKOUT

# Of every third disk the database knows a value that a rule saved, of the others only what udev
# itself keeps there.
SCRIPT = """
import json, sys
from pathlib import Path
from hbatune.facts.machine import gather_machine
from hbatune.facts.udev import find_marked_disks, read_saved_texts
count = int(sys.argv[1])
endpoints = [each for each in gather_machine(["size"]).endpoints if each.device_node][:count]
data = Path("/run/udev/data")
data.mkdir(parents=True)
for number, each in enumerate(endpoints):
    device = Path(each.sysfs, "dev").read_text().strip()
    ours = f"E:HBATUNE_SEEN={number + 1}\\nE:HBATUNE_WAS_NR_REQUESTS={number}\\n"
    text = f"I:{number + 1}\\nE:ID_SERIAL=x\\n" + (ours if number % 3 == 0 else "") + "V:1\\n"
    (data / f"b{device}").write_text(text)
found = read_saved_texts(endpoints)
ids = [each.id for each in endpoints]
assert sorted(find_marked_disks()) == sorted(each.sysfs for each in endpoints if each.id in found)
print(json.dumps({ids.index(id): [it.texts, it.appeared] for id, it in found.items()}))
"""


@pytest.mark.skipif(not can_enter(), reason="needs root and mount namespaces")
@pytest.mark.parametrize("disks", [5, 40])
def test_every_saved_value_is_read(tmp_path: Path, disks: int) -> None:
    build(build_many_luns(40, 1), tmp_path)
    words = ["env", f"PYTHONPATH={CHECKOUT}", sys.executable, "-c", SCRIPT, str(disks)]
    saved_texts = msgspec.json.decode(
        run(tmp_path, words), type=dict[int, tuple[dict[str, str], str]]
    )
    wanted = range(0, disks, 3)
    assert saved_texts == {n: ({"NR_REQUESTS": str(n)}, str(n + 1)) for n in wanted}
