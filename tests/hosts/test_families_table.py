"""The table in docs/families.md is true on the machine of each family."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hbatune.facts.families import families
from hbatune.facts.family import Family, Purpose
from hbatune.facts.model import Attribute
from hbatune.plan.make import make_plan
from hbatune.plan.rows import State
from hbatune.policy.profile import Exactly
from hbatune.settings.table import FIRMWARE_COALESCING, SETTINGS
from tests.hosts.conftest import Surveyed
from tests.hosts.parts import real_parameters
from tests.hosts.wished_profiles import wishes
from tools.capabilities import COLUMNS, Access, capabilities

Survey = Callable[[str], Surveyed]

FAMILIES = {family.name: family for family in families()}

# Every option or attribute that any driver has for these, read from the drivers.
HOST_DEPTH = {
    "max_queue_depth",
    "numacb",
    "ql2xiniexchg",
    "lpfc_hba_queue_depth",
    "io_queue_depth",
    "ring_pages",
    "queue_depth",
    "max_queue",
    "host_max_queue",
    "host_can_queue",
    "max_ring_page_order",
    "storvsc_ringbuffer_size",
}
COALESCING = {"perf_mode", "lpfc_fcp_imax", "lpfc_cr_delay", "lpfc_cr_count", "zio", "zio_timer"}


def parameters(described: Surveyed, family: Family) -> set[str]:
    """Return the parameters that the driver's module has there."""
    folder = described.root / "sys" / "module" / family.name / "parameters"
    return set(os.listdir(folder)) if folder.is_dir() else set()


def host_attributes(described: Surveyed) -> set[str]:
    hosts = (described.root / "sys" / "class" / "scsi_host").glob("*")
    return {name for host in hosts for name in os.listdir(host)}


def identity(described: Surveyed, family: Family) -> Access:
    return Access.READ if described.adapter.product else Access.ABSENT


def firmware(described: Surveyed, family: Family) -> Access:
    return Access.READ if isinstance(described.adapter.firmware, str) else Access.ABSENT


def depth(described: Surveyed, family: Family) -> Access:
    """Say what becomes of a wish: planned on one endpoint at least, or on none."""
    rows = make_plan(described.machine, wishes("queue_depth", Exactly(2))).rows
    states = {row.state for row in rows}
    if State.DRIFT in states:
        return Access.SET
    [state] = states
    assert state in (State.FIXED, State.ABSENT), (
        f"queue_depth of {described.adapter.target} is {state}: describe the depth that "
        "depth_default of the family returns, since hbatune keeps a lower one"
    )
    return Access.FIXED if state is State.FIXED else Access.ABSENT


def host_depth(described: Surveyed, family: Family) -> Access:
    return Access.SET if parameters(described, family) & HOST_DEPTH else Access.FIXED


def vectors(described: Surveyed, family: Family) -> Access:
    """Say what the files of the data vectors let anybody do; a line is nobody's to move."""
    pci = described.adapter.pci
    if pci is None:
        return Access.ABSENT
    function = described.root / "sys" / "bus" / "pci" / "devices" / pci.address
    if not (function / "msi_irqs").is_dir():
        assert (function / "irq").read_text() != "0\n"
        return Access.FIXED
    numbers = os.listdir(function / "msi_irqs")
    locked = [_locked(described.root / "proc" / "irq" / number) for number in numbers]
    return Access.FIXED if any(locked) else Access.SET


def _locked(vector: Path) -> bool:
    return not (vector / "smp_affinity_list").stat().st_mode & 0o222


def coalescing(described: Surveyed, family: Family) -> Access:
    names = host_attributes(described) | parameters(described, family)
    # A described machine has no firmware: only the driver's device node leads to its page.
    if names & COALESCING or described.adapter.controller or family.name == "mpi3mr":
        return Access.SET
    # hpsa's figures are in its code alone, so no machine can show them.
    return Access.FIXED if family.name == "hpsa" else Access.ABSENT


TRUTH: dict[str, Callable[[Surveyed, Family], Access]] = {
    "identity": identity,
    "depth": depth,
    "host depth": host_depth,
    "vectors": vectors,
    "coalescing": coalescing,
    "firmware": firmware,
}


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("name", FAMILIES)
def test_table_cells_match_machine(surveyed: Survey, name: str, column: str) -> None:
    family = FAMILIES[name]
    access = capabilities(family)[column].access
    problem = f"{column} of {name} (HOST_DEPTH and COALESCING above list the options)"
    assert access is TRUTH[column](surveyed(name), family), problem


@pytest.mark.parametrize("name", FAMILIES)
def test_family_options_and_attributes_exist(surveyed: Survey, name: str) -> None:
    family, described = FAMILIES[name], surveyed(name)
    options = {option.name for option in family.options}
    if options:
        real_parameters(name, options)
    attributes = host_attributes(described)
    for lever in family.coalescing:
        # The others are features of NVMe, and a page of the firmware.
        if lever in SETTINGS and lever != FIRMWARE_COALESCING:
            assert lever in (options if SETTINGS[lever].at_load else attributes)


def test_depth_file_mode_matches_table(surveyed: Survey) -> None:
    for name, family in FAMILIES.items():
        for endpoint in surveyed(name).machine.endpoints:
            file = endpoint.attributes["device/queue_depth"]
            access = capabilities(family)["depth"].access
            writable = isinstance(file, Attribute) and file.writable
            assert writable is (access is Access.SET)


def test_host_depths_are_options() -> None:
    named = {
        option.name
        for family in FAMILIES.values()
        for option in family.options
        if option.purpose is Purpose.HOST_DEPTH
    }
    assert named == HOST_DEPTH, "add a new option to HOST_DEPTH above"
