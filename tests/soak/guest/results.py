"""Results files, left in the guest for the host to fetch."""

import json
import platform
from datetime import UTC, datetime
from pathlib import Path

ARTIFACTS = Path("/run/lab/artifacts")


def kept(what: str, *, name: str, **found: object) -> None:
    """Leave a results file with what was measured, on which kernel and when."""
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    series = ".".join(platform.release().split(".")[:2])
    results = {
        "what": what,
        "kernel": platform.release(),
        "date": datetime.now(UTC).date().isoformat(),
        **found,
    }
    (ARTIFACTS / f"{name}-{series}.json").write_text(json.dumps(results, indent=1) + "\n")
