"""Checks of a machine: pure functions from facts, policy and plan to findings with evidence.

They do no I/O. A new check is one class with its text, one function, and one entry in ``registry``.
"""
