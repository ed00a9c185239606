"""Compare current values with a profile: facts and a profile in, a plan out.

Pure: nothing is read or written, so the same facts always give the same plan.
"""
