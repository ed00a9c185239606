"""Generate the package's bill of materials (CycloneDX): its content and dependencies."""

import json
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "hbatune")


def text(
    version: str, epoch: int, carried: Mapping[str, tuple[str, str]], needed: Sequence[str]
) -> str:
    """Return the bill as JSON, the same for the same commit (CycloneDX 1.5).

    ``carried`` are the version and the SPDX licence of the included Python packages, ``needed`` the
    required Debian packages.
    """
    ref = f"pkg:deb/debian/hbatune@{version.replace('+', '%2B')}"
    inside = [
        {
            **_library(name, f"pkg:pypi/{name}@{number}", "required"),
            "version": number,
            "licenses": [{"expression": licence}],
        }
        for name, (number, licence) in carried.items()
    ]
    outside = [_library(name, f"pkg:deb/debian/{name}", "required") for name in needed]
    parts = sorted(inside + outside, key=lambda part: str(part["purl"]))
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, version)}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "application",
                "bom-ref": ref,
                "name": "hbatune",
                "version": version,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
                "purl": ref,
            },
        },
        "components": parts,
        "dependencies": [{"ref": ref, "dependsOn": [str(part["bom-ref"]) for part in parts]}],
    }
    return json.dumps(document, indent=2) + "\n"


def _library(name: str, purl: str, scope: str) -> dict[str, Any]:
    return {"type": "library", "bom-ref": purl, "name": name, "scope": scope, "purl": purl}
