"""Results files of what runs on the host; the guests' are fetched from there."""

import json
from datetime import UTC, datetime
from pathlib import Path

_FOLDER = Path(__file__).parent / "results"


def kept(what: str, *, name: str, **found: object) -> None:
    """Leave a results file with what was counted, and when."""
    results = {"what": what, "date": datetime.now(UTC).date().isoformat(), **found}
    (_FOLDER / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n")
