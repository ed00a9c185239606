"""A host's facts and policy in one small file, readable on any machine.

This package is above ``policy``: a snapshot includes the host's own rules, so every machine gives
the same answer as the host.
"""
