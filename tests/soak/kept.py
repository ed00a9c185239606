"""Results files of what runs on the host; the guests' are fetched from there."""

import json
from datetime import UTC, datetime
from pathlib import Path

_FOLDER = Path(__file__).parent / "results"


def save_results(description: str, *, name: str, **figures: object) -> None:
    """Write a results file with the figures and the date."""
    results = {"what": description, "date": datetime.now(UTC).date().isoformat(), **figures}
    (_FOLDER / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n")
