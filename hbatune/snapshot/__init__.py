"""A host's facts and policy in one small file, to be looked at anywhere.

This room stands to the right of ``policy``: a snapshot holds what the host's own rules were, so
that every machine gives the answer that the host itself would give.
"""
