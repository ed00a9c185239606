"""Publish metrics in a file for node_exporter's textfile collector."""

from contextlib import suppress
from pathlib import Path

from hbatune.act import files
from hbatune.errors import UsageError

FILE_NAME = "hbatune.prom"


class Exporter:
    """Publishes metrics in a directory. Raises ``UsageError`` if it does not exist."""

    def __init__(self, directory: str) -> None:
        if not Path(directory).is_dir():
            raise UsageError(
                f"the directory for metrics, {directory}, does not exist",
                hint="use the directory of node_exporter's textfile collector",
            )
        self._file = Path(directory, FILE_NAME)

    def publish(self, content: bytes) -> None:
        """Publish new metrics; raise OSError if the file cannot be written."""
        files.publish(self._file, content, mode=0o644)

    def close(self) -> None:
        """Remove the file: old metrics must not look current."""
        with suppress(OSError):
            self._file.unlink(missing_ok=True)
