"""A snapshot's parts belong together, and rules of a newer hbatune are left out and said."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from hbatune.cli import main
from hbatune.facts.model import Kind
from hbatune.policy.profile import AtLeast, Exactly, OptionRule
from hbatune.snapshot.file import (
    Snapshot,
    SnapshotError,
    decode_snapshot,
    encode_snapshot,
    load_snapshot,
)
from tests.unit.check_inputs import disk_health
from tests.unit.machines import adapter, control, endpoint, machine, vector
from tests.unit.profiles import profile
from tests.unit.snapshots import snapshot

RECORDED = Path(__file__).parents[2] / "mutants" / "recorded"
MADE = machine(
    endpoint(kind=Kind.PATH, map="dm-0"),
    endpoint(target="dm-0", kind=Kind.MAP, adapter=None, paths=("sda",)),
    vectors=(vector(),),
    controls=(control(),),
)


def altered(**changes: object) -> Snapshot:
    return replace(snapshot(MADE), machine=replace(MADE, **changes))


@pytest.mark.parametrize("path", sorted(RECORDED.iterdir()), ids=lambda path: path.stem)
def test_consistent_machine_is_faultless(path: Path) -> None:
    assert load_snapshot(path).machine.endpoints
    assert decode_snapshot(encode_snapshot(snapshot(MADE)), path) == snapshot(MADE)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (altered(adapters=(adapter(), adapter())), "the adapter '0000:01:00.0' twice"),
        (altered(endpoints=(*MADE.endpoints, MADE.endpoints[0])), "the endpoint 'sda' twice"),
        (
            altered(endpoints=(*MADE.endpoints, replace(MADE.endpoints[0], target="sdb"))),
            "twice",
        ),
        (altered(controls=(control(), control())), "the control 'nvme0' twice"),
        (altered(endpoints=(MADE.endpoints[0],)), "'sda' is of the map 'dm-0', which is not"),
        (altered(endpoints=(MADE.endpoints[1],)), "'dm-0' is of the path 'sda', which is not"),
        (altered(vectors=(vector(adapter="host9"),)), "'irq30' is of the adapter 'host9'"),
        (altered(controls=(control(adapter="host9"),)), "'nvme0' is of the adapter 'host9'"),
        (altered(local_cpus={"host9": (1,)}), "a list of CPUs"),
        (altered(adapters=()), "'sda' is of the adapter '0000:01:00.0', which is not in it"),
    ],
)
def test_dangling_reference_is_refused(broken: Snapshot, message: str) -> None:
    with pytest.raises(SnapshotError) as error:
        decode_snapshot(encode_snapshot(broken), Path("host"))
    assert message.strip("'") in error.value.message
    assert error.value.exit_code == 2


def test_health_must_match_machine() -> None:
    host_snapshot = snapshot(MADE)
    for health in (
        replace(host_snapshot.health, adapters={}),
        replace(host_snapshot.health, disks={**host_snapshot.health.disks, "sdz": disk_health()}),
    ):
        broken = encode_snapshot(replace(host_snapshot, health=health))
        with pytest.raises(SnapshotError, match="do not agree"):
            decode_snapshot(broken, Path("host"))


def test_newer_rules_are_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    newer = profile(
        ("nr_requests", AtLeast(1024)),
        ("of_a_newer_version", Exactly(1)),
        ("scheduler", Exactly("of_a_newer_kernel")),
    )
    option = OptionRule("name", "mpt3sas", "of_a_newer_driver", AtLeast(1), "so", "D0-1", "file")
    host_snapshot = snapshot(MADE, replace(newer, options=(option,)), active=newer.name)
    path = tmp_path / "host"
    path.write_bytes(encode_snapshot(host_snapshot))
    assert load_snapshot(path) == host_snapshot, "the snapshot keeps them"
    for command in ("diff", "check", "explain sda"):
        main([*command.split(), "--snapshot", str(path)])
        captured = capsys.readouterr()
        left_out = "of_a_newer_version, scheduler, mpt3sas.of_a_newer_driver"
        assert f"rules for {left_out} are left out" in captured.err
    assert main(["diff", "--json", "--snapshot", str(path)]) == 1
    assert '"nr_requests"' in capsys.readouterr().out
