"""hbatune with a stop-watch around each phase of an apply.

``python3 phases.py FILE WORD…`` runs ``hbatune WORD…`` and leaves in FILE the seconds of each phase
as a JSON object: of all but the interpreter's, whose start and end only its caller sees.
"""

import json
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PHASES = {
    "interpreter": "its start and end",
    "imports": "the command and all that it imports at once",
    "facts": "configuration, profile, and a look at the machine",
    "plan": "the plan",
    "baselines": "the values in force, read just before the journal",
    "journal": "both saves of the journal, on disk",
    "writing": "all LUNs, each value read back",
    "rest": "the active profile, udev's rules, the history and what is printed",
}
"""The phases in their order, and what each has in it."""


class StopWatch:
    """Adds up the seconds that functions take, by phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def around(self, owner: Any, name: str, phase: str) -> None:
        """Replace a function of a module or class by one that is timed."""
        function = getattr(owner, name)

        def timed(*words: object, **options: object) -> object:
            started = time.perf_counter()
            try:
                return function(*words, **options)
            finally:
                self.add(phase, started)

        setattr(owner, name, timed)

    def add(self, phase: str, started: float) -> None:
        """Add to a phase what has passed since ``started``."""
        self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - started


def split(runs: Sequence[tuple[float, Mapping[str, float]]]) -> dict[str, float]:
    """Return the median seconds of each phase, from the wall time and the phases of each run."""
    all_phases = [
        {"interpreter": took - sum(phases.values()), **phases}  # what the stop-watch cannot see
        for took, phases in runs
    ]
    return {
        name: round(statistics.median(run_phases[name] for run_phases in all_phases), 4)
        for name in PHASES
    }


def command(python: str, file: Path, words: Sequence[str]) -> list[str]:
    """Return the command that leaves the phases of ``hbatune WORD…`` in the file."""
    return [python, str(Path(__file__).resolve()), str(file), *words]


def main(file: Path, words: Sequence[str]) -> int:
    """Run hbatune and save the seconds of its phases."""
    began = time.perf_counter()
    watch = StopWatch()
    from hbatune.act import writer as act
    from hbatune.act.executor import Means
    from hbatune.cli import main as hbatune
    from hbatune.cli.parser import make_parser
    from hbatune.operations import apply as operations
    from hbatune.operations.situation import Situation

    make_parser(words)  # imports the command's module
    watch.add("imports", began)
    watch.around(operations, "survey", "facts")
    watch.around(Situation, "plan", "plan")
    watch.around(act, "read_baselines", "baselines")
    watch.around(Means, "save_journal", "journal")
    watch.around(act, "execute_chains", "writing")
    code = hbatune(list(words))
    remaining_seconds = time.perf_counter() - began - sum(watch.seconds.values())
    file.write_text(json.dumps({**watch.seconds, "rest": remaining_seconds}))
    return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
