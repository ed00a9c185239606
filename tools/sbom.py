"""The bill of materials of the package, as CycloneDX has it: what is inside, and what it needs."""

import importlib.metadata
import json
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "hbatune")


def text(version: str, epoch: int, carried: Sequence[str], needed: Sequence[str]) -> str:
    """Return the bill as JSON, the same for the same commit (CycloneDX 1.5).

    ``carried`` are the Python packages inside, ``needed`` the Debian packages that it depends on.
    """
    own = f"pkg:deb/debian/hbatune@{version.replace('+', '%2B')}"
    inside = [_carried(name) for name in carried]
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
                "bom-ref": own,
                "name": "hbatune",
                "version": version,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
                "purl": own,
            },
        },
        "components": parts,
        "dependencies": [{"ref": own, "dependsOn": [str(part["bom-ref"]) for part in parts]}],
    }
    return json.dumps(document, indent=2) + "\n"


def _carried(name: str) -> dict[str, Any]:
    found = importlib.metadata.distribution(name)
    part = _library(name, f"pkg:pypi/{name}@{found.version}", "required")
    said = (found.metadata.get_all(key) for key in ("License-Expression", "License"))
    licence = next((each[0] for each in said if each), None)
    if licence is not None and "\n" not in licence:
        part["licenses"] = [{"expression": licence}]
    return {**part, "version": found.version}


def _library(name: str, purl: str, scope: str) -> dict[str, Any]:
    return {"type": "library", "bom-ref": purl, "name": name, "scope": scope, "purl": purl}
