"""What the facts say of LUNs of shared arrays, and what a site's description makes of them."""

from collections.abc import Callable

from hbatune.facts.model import Missing, Reason
from hbatune.policy.budget import compute_budgets
from hbatune.policy.config import Site, SiteArray
from hbatune.policy.library import Library
from hbatune.shipped import find_shipped
from tests.hosts.conftest import Surveyed

Survey = Callable[[str], Surveyed]


def test_path_reports_port_access_preference(
    surveyed: Survey,
) -> None:
    endpoints = surveyed("fc_arrays").endpoints
    assert {name: endpoint.port for name, endpoint in endpoints.items()} == {
        "sda": "0x500601613b240f3a",
        "sdb": "0x500601613b240f3a",
        "sdc": None,
    }
    assert (endpoints["sda"].access, endpoints["sda"].preferred) == ("active/optimized", True)
    assert (endpoints["sdb"].access, endpoints["sdb"].preferred) == ("active/non-optimized", False)
    access = endpoints["sdc"].access
    assert isinstance(access, Missing)
    assert access.reason is Reason.UNREADABLE


def test_budget_uses_make_and_port(surveyed: Survey) -> None:
    site = Site(
        array=(
            SiteArray(name="clariion", hosts=8, vendor="DGC", port_limit=1600, data_drives=4),
            SiteArray(name="usp", hosts=2, vendor="HITACHI"),
        )
    )
    machine = surveyed("fc_arrays").machine
    budgets = compute_budgets(machine, site, Library(find_shipped("rules")).arrays())
    depths = {endpoint.target: budgets[endpoint.id].depth for endpoint in machine.endpoints}
    assert depths == {"sda": 88, "sdb": 88, "sdc": 32}


def test_hidden_nvme_path_reports_access(
    surveyed: Survey,
) -> None:
    hidden = surveyed("nvme_shared").endpoints["nvme1c1n1"]
    assert hidden.access == "optimized"
    plain = surveyed("mpt3sas").endpoints["sda"]
    assert plain.access == plain.preferred == Missing(Reason.ABSENT, 2)
