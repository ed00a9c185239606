"""docs/profiles.md: where two shipped profiles are alike, and the source of each value."""

import pytest

from tests.unit.site_folder import SiteFolder
from tools.endpoint_types import TYPICAL_ENDPOINTS
from tools.profiles_page import NAMES, alike, by_kind, page, settings

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
    changed = {name: text for name, text in latency.items() if oltp.get(name) != text}
    settings_changed = {name: text for name, text in changed.items() if "objective" not in name}
    assert settings_changed == LATENCY[kind]


def test_page_values_cite_sources() -> None:
    tables, _, sources = page().partition("## Sources")
    rows = [line for line in tables.splitlines() if line.startswith(("| `", "| p99"))]
    cells = [cell.strip() for line in rows for cell in line.strip("|").split("|")[1:]]
    filled = [cell for cell in cells if cell not in ("", "unchanged")]
    assert len(filled) > 100
    loads = [line for line in tables.splitlines() if "in flight (" in line]
    cited = {text.rpartition("(")[2].rstrip(")") for text in (*filled, *loads)}
    listed = [line[2:] for line in sources.splitlines() if line.startswith("- ")]
    assert {line.partition(":")[0] for line in listed} == cited
