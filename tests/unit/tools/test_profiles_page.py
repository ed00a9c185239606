"""docs/profiles.md: where two shipped profiles are alike, and the source of each value."""

import pytest

from tests.unit.site_folder import SiteFolder
from tools.profiles_page import NAMES, alike, by_kind, page, settings
from tools.readme import TYPICAL_ENDPOINTS

ALIKE: dict[str, list[tuple[str, str]]] = {
    "NVMe path of a native multipath": [("balanced", "throughput")],
    "SAS HDD": [("balanced", "oltp")],
    "iSCSI": [("balanced", "latency")],
    "array attached by SAS": [("balanced", "latency")],
    "NVMe over fabrics": [("balanced", "latency")],
    "NVMe of a cloud": [("balanced", "latency")],
    "virtual disk": [("balanced", "oltp"), ("balanced", "latency"), ("oltp", "latency")],
}
"""The pairs that set and promise the same, by kind of disk; on the other kinds all four differ."""

LATENCY = {
    "NVMe drive, native": {
        "wbt_lat_usec": "2000 (K-wbt)",
        "pm_qos_latency_tolerance_us": "0 (K-apst)",
    },
    "SAS SSD": {"queue_depth": "at least 32 (D0-12)", "wbt_lat_usec": "2000 (K-wbt)"},
    "SAS HDD": {"wbt_lat_usec": "75000 (K-wbt)"},
    "SATA": {"wbt_lat_usec": "2000 (K-wbt)"},
    "RAID volume": {"wbt_lat_usec": "2000 (K-wbt)"},
}
"""What `latency` has and `oltp` has not, beside objectives."""


@pytest.mark.parametrize("kind", TYPICAL_ENDPOINTS)
def test_profiles_differ_unless_listed(site: SiteFolder, kind: str) -> None:
    rows = {name: by_kind(site.load(name))[kind] for name in NAMES}
    assert alike(rows) == ALIKE.get(kind, [])


@pytest.mark.parametrize("kind", LATENCY)
def test_latency_differs_from_oltp(site: SiteFolder, kind: str) -> None:
    latency, oltp = (settings(by_kind(site.load(name))[kind]) for name in ("latency", "oltp"))
    own = {name: said for name, said in latency.items() if oltp.get(name) != said}
    assert {name: said for name, said in own.items() if "objective" not in name} == LATENCY[kind]


def test_page_values_cite_sources() -> None:
    tables, _, sources = page().partition("## Sources")
    rows = [line for line in tables.splitlines() if line.startswith(("| `", "| p99"))]
    cells = [each.strip() for line in rows for each in line.strip("|").split("|")[1:]]
    said = [each for each in cells if each not in ("", "as it is")]
    assert len(said) > 100
    cited = {each.rpartition("(")[2].rstrip(")") for each in said}
    listed = [line[2:] for line in sources.splitlines() if line.startswith("- ")]
    assert {line.partition(":")[0] for line in listed} == cited
