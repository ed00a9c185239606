"""``python -m tests.bench.alternate ROUNDS JSON``: time two commands in turns, print the samples.

The object has two commands, ``subject`` and ``reference``, and the exit code of each. It is a
program because the two run in a mount namespace that this process is not in.
"""

import json
import sys

from tests.bench.guest.comparison import in_turns, seconds

if __name__ == "__main__":
    wanted = json.loads(sys.argv[2])
    (subject, drift), (reference, done) = wanted["subject"], wanted["reference"]
    samples = in_turns(
        int(sys.argv[1]),
        lambda: seconds(subject, expected=drift),
        lambda: seconds(reference, expected=done),
    )
    print(json.dumps(samples))
