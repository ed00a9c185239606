"""Run in a described machine's namespace: what commands say of one disk, and what they look at.

Arguments: the disk. Prints a JSON object: by command its output, its exit code and the number of
directories that it read, first as it is and then where it has to look at everything.
"""

import contextlib
import io
import json
import sys
from unittest.mock import patch

from hbatune.cli import main
from hbatune.facts import assembly, machine, survey

COMMANDS = {
    "list": ("list", "--json"),
    "diff": ("diff", "--profile", "oltp", "--json"),
    "explain": ("explain", "--profile", "latency"),
}


def run_counted(words: tuple[str, ...]) -> tuple[str, int, int]:
    """Run the command; return its output, its exit code and the number of directories read."""
    out, read = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), []

    def survey_each(requests, **how):  # type: ignore[no-untyped-def]
        read.extend(requests)
        return survey.survey_requests(requests, **how)

    with patch.object(assembly, "survey_requests", survey_each), contextlib.redirect_stdout(out):
        code = main(words)
    out.seek(0)
    return out.read(), code, len(read)


if __name__ == "__main__":
    outputs = {}
    for name, words in COMMANDS.items():
        alone = run_counted((*words, sys.argv[1]))
        with patch.object(machine, "_gather_disks", lambda *arguments: None):
            outputs[name] = (alone, run_counted((*words, sys.argv[1])))
    print(json.dumps(outputs))
