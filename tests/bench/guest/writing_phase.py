"""hbatune with a stop-watch around its writing phase: what comes after the journal is durable.

``python3 writing_phase.py FILE WORD…`` runs ``hbatune WORD…`` and leaves in FILE the seconds that
``hbatune.act.apply.execute`` took.
"""

import sys
import time
from collections.abc import Iterable
from pathlib import Path

from hbatune.act import apply
from hbatune.act.apply import Means
from hbatune.act.chain import Chain
from hbatune.act.executor import Report
from hbatune.cli import main


def watch(file: Path) -> None:
    """Put the stop-watch around the writing phase."""
    execute = apply.execute

    def watched(chains: Iterable[Chain], means: Means) -> Report:
        started = time.perf_counter()
        report = execute(chains, means)
        file.write_text(str(time.perf_counter() - started))
        return report

    apply.execute = watched


if __name__ == "__main__":
    watch(Path(sys.argv[1]))
    sys.exit(main(sys.argv[2:]))
