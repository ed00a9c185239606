"""``python -m tests.bench.alternate ROUNDS JSON``: time two commands in turns, print the samples.

The object has two commands, ``subject`` and ``reference``, and the exit code of each; with ``cpu``
their CPU time is taken instead of the clock's. It is a program because the two run in a mount
namespace that this process is not in.
"""

import json
import sys

from tests.bench.guest.comparison import cpu_seconds, in_turns, seconds

if __name__ == "__main__":
    wanted = json.loads(sys.argv[2])
    (subject, drift), (reference, done) = wanted["subject"], wanted["reference"]
    measure = cpu_seconds if wanted.get("cpu") else seconds
    samples = in_turns(
        int(sys.argv[1]),
        lambda: measure(subject, expected=drift),
        lambda: measure(reference, expected=done),
    )
    print(json.dumps(samples))
