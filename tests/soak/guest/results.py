"""Results files, left in the guest for the host to fetch."""

import json
import platform
import re
from datetime import UTC, datetime
from pathlib import Path

ARTIFACTS = Path("/run/lab/artifacts")
_PLAIN_LIST = re.compile(r"\[[^][{}]*\]")  # a line each, however long: a run differs in few of them


def save_results(description: str, *, name: str, **figures: object) -> None:
    """Write a results file with the figures, the kernel and the date."""
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    series = ".".join(platform.release().split(".")[:2])
    results = {
        "what": description,
        "kernel": platform.release(),
        "date": datetime.now(UTC).date().isoformat(),
        **figures,
    }
    text = _PLAIN_LIST.sub(lambda match: " ".join(match[0].split()), json.dumps(results, indent=1))
    (ARTIFACTS / f"{name}-{series}.json").write_text(text + "\n")
