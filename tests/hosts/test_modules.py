"""The options of loaded modules, as the described machines show them."""

from collections.abc import Callable

import pytest

from hbatune.facts.attributes import ABSENT
from hbatune.facts.families import families
from hbatune.facts.model import Attribute
from tests.hosts.conftest import Surveyed
from tests.hosts.parts import real_parameters

Survey = Callable[[str], Surveyed]


@pytest.mark.parametrize("name", ["mpt3sas", "megaraid_sas", "lpfc", "qla2xxx", "ipr", "nvme"])
def test_declared_module_options_are_read(surveyed: Survey, name: str) -> None:
    [module] = surveyed(name).machine.modules
    family = next(candidate for candidate in families() if candidate.name == name)
    assert module.name == name
    real = real_parameters(name)
    assert module.parameters == {
        option.name: Attribute(text, bool(mode & 0o200)) if mode else ABSENT
        for option in family.options
        for mode, text in [real[option.name]]
    }


def test_missing_module_has_no_options(surveyed: Survey) -> None:
    assert surveyed("mpt3sas_9300").machine.modules == ()
