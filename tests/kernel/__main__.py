"""``python -m tests.kernel SEED…``: run seeds again and show the shortest failing sequences."""

import sys

from tests.kernel.sequences import described, sequence, shortest, violations

for argument in sys.argv[1:]:
    made = sequence(int(argument))
    print("\n".join(described(made, violations(made))))
    for invariant in dict.fromkeys(each.invariant for each in violations(made)):
        short = shortest(made, invariant)
        found = [each for each in violations(short) if each.invariant == invariant]
        print(f"\nshortest for {invariant}:")
        print("\n".join(described(short, found[:1])))
