"""Which values a result stands on."""

from msgspec.structs import replace

from hbatune.plan.rows import Outcome
from hbatune.probe.result import InForce
from hbatune.probe.selection import (
    list_current_settings,
    list_subjects,
    merge_written,
    replace_values,
)
from tests.unit.machines import adapter, attributes, control, endpoint, machine, vector
from tests.unit.probe.applied_rows import row

SCHEDULER = InForce("sda", "scheduler", "none")
REQUESTS = InForce("sda", "nr_requests", 256)
DEPTH = InForce("sda", "queue_depth", 254)


def test_subject_lists_disk_and_controls() -> None:
    host = machine(endpoint(), adapters=(adapter(),), controls=(control(),))
    [subject] = list_subjects(host, {"sda"})
    assert set(subject.settings) == {SCHEDULER, REQUESTS, DEPTH, InForce("nvme0", "coalescing", 0)}


def test_unparsable_settings_are_omitted() -> None:
    disk = endpoint(attributes=attributes(queue__scheduler="[none]", queue__nr_requests="many"))
    assert list_current_settings(machine(disk), [disk], []) == (SCHEDULER,)


def test_written_values_replace_old_ones() -> None:
    rows = [
        replace(row("scheduler"), value="kyber", outcome=Outcome.WRITTEN),
        replace(row("nr_requests"), value=2048, outcome=Outcome.REFUSED),
        replace(row("queue_depth", "sdb"), value=64, outcome=Outcome.WRITTEN),
    ]
    merged = merge_written((SCHEDULER, REQUESTS, DEPTH), rows)
    assert merged == (InForce("sda", "scheduler", "kyber"), REQUESTS, DEPTH)


def test_with_value_replaces_single_setting() -> None:
    assert replace_values((SCHEDULER, DEPTH), {("sda", "queue_depth"): 8}) == (
        SCHEDULER,
        InForce("sda", "queue_depth", 8),
    )


def test_subject_separates_serving_cpus() -> None:
    host = machine(endpoint(), adapters=(adapter(),), vectors=(vector(effective="0"),))
    [subject] = list_subjects(host, {"sda"})
    assert subject.serving == (0,)
    assert 0 not in subject.cpus
