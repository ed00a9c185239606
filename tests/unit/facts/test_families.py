"""What the families declare: identities that are one, levers that are cited, limits that hold."""

import inspect
import re
import subprocess
import sys
from importlib import import_module
from itertools import pairwise

import pytest

from hbatune.facts.classify import Evidence
from hbatune.facts.families import GENERIC, families, family_named, family_of
from hbatune.facts.family import Purpose, Vectors
from hbatune.facts.model import Missing, Pci, Reason, Role
from tests.hosts.families import describe
from tests.unit.machines import host
from tools.families_page import load_traps

ABSENT = Missing(Reason.ABSENT)
FAMILIES = {family.name: family for family in families()}


def test_product_ids_are_unique() -> None:
    ids = [
        (p.vendor, p.device, p.subsystem) for family in FAMILIES.values() for p in family.products
    ]
    assert len(set(ids)) == len(ids)


CITED = re.compile(r"# .*(\w\.[ch]\b|specification)")


@pytest.mark.parametrize("name", FAMILIES)
def test_family_claims_cite_sources(name: str) -> None:
    """The comment above an interrupt model or a lever names the kernel's file."""
    family = FAMILIES[name]
    assert family.interrupts.vectors is not Vectors.UNKNOWN
    lines = inspect.getsource(import_module(f"hbatune.facts.families.{name}")).splitlines()
    claims = 0
    for before, line in pairwise(map(str.strip, lines)):
        is_lever = line.removesuffix(",").strip('"') in family.coalescing
        if is_lever or line.startswith(("interrupts=", "fixed_coalescing=")):
            claims += 1
            problem = f"above {line!r} there is no comment such as `# path/file.c: function`"
            assert CITED.match(before), problem
    assert claims == 1 + len(family.coalescing) + bool(family.fixed_coalescing)
    assert all(trap["source"] for trap in load_traps().get(name, ()))


@pytest.mark.parametrize("name", FAMILIES)
def test_coalescing_options_are_levers(name: str) -> None:
    family = FAMILIES[name]
    names = [option.name for option in family.options]
    assert len(set(names)) == len(names)
    levers = {o.name for o in family.options if o.purpose is Purpose.COALESCING}
    assert levers <= set(family.coalescing)


@pytest.mark.parametrize("name", FAMILIES)
def test_described_vectors_have_roles(name: str) -> None:
    """Of the described vectors none that is locked is admin, and not all are."""
    model = FAMILIES[name].interrupts
    for function in describe(name).functions:
        expectations = [(model.expected([vector.name]), vector) for vector in function.vectors]
        for (role, managed), vector in expectations:
            assert role is not Role.UNKNOWN, f"add a Handler for {vector.name} to {name}"
            assert managed is vector.locked, f"{vector.name}: `managed` must equal `locked`"
        assert not expectations or any(role is Role.DATA for (role, _), _ in expectations)


@pytest.mark.parametrize(
    ("device", "cap"),
    [(0x0072, 32), (0x0097, 32), (0x00C5, 32), (0x00AC, 9664), (0x00D1, 9664), (0x00E6, 9664)],
)
def test_mpt3sas_chip_caps_sata_depth(device: int, cap: int) -> None:
    family = FAMILIES["mpt3sas"]
    drive = Evidence(transport="sas", vendor="ATA", sat=True)
    function = Pci("0000:01:00.0", 0x010700, 0x1000, device, ABSENT, ABSENT)
    assert family.depth_cap(function, host(), drive) == cap
    assert family.depth_cap(function, host(), Evidence(vendor="SEAGATE")) == 9664
    assert family.depth_cap(None, host(), drive) == 32


def test_drivers_have_single_family() -> None:
    """Else which of them is found would hang on which was looked at first."""
    drivers = [driver for family in families() for driver in family.drivers]
    assert len(drivers) == len(set(drivers))


def test_family_name_matches_module() -> None:
    for family in families():
        module = import_module(f"hbatune.facts.families.{family.name}")
        assert module.FAMILY is family is family_named(family.name)


def test_every_driver_finds_family() -> None:
    for family in families():
        assert all(family_of(driver) is family for driver in family.drivers)
    assert family_of(None, "nobody") is family_of() is GENERIC
    assert family_of(None, "mpt2sas", "ahci").name == "mpt3sas"


def test_namesake_driver_imports_single_family() -> None:
    code = (
        "import sys; from hbatune.facts.families import family_of; family_of(None, 'mpi3mr')\n"
        "print(*(each for each in sys.modules if each.startswith('hbatune.facts.families.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    assert done.stdout.decode().split() == ["hbatune.facts.families.mpi3mr"]
