"""``python -m tests.kernel SEED…``: run seeds again and show the shortest failing sequences."""

import sys

from tests.kernel.sequences import described, sequence, shortest, violations

for argument in sys.argv[1:]:
    scenario = sequence(int(argument))
    print("\n".join(described(scenario, violations(scenario))))
    for invariant in dict.fromkeys(violation.invariant for violation in violations(scenario)):
        short = shortest(scenario, invariant)
        same_violations = [
            violation for violation in violations(short) if violation.invariant == invariant
        ]
        print(f"\nshortest for {invariant}:")
        print("\n".join(described(short, same_violations[:1])))
