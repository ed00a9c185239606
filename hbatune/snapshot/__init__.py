"""A host's facts and policy in one small file, to be read on any machine.

This room stands above ``policy``: a snapshot includes the host's own rules, so that every machine
gives the answer that the host itself would give.
"""
