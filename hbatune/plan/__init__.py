"""The difference between current and wanted values: facts and a profile in, a plan out.

Pure: nothing is read or written, so that the same facts always give the same plan.
"""
