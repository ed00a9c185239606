"""Compare current values with a profile. The same facts always give the same plan. Pure."""
