"""Checks of a machine: pure functions from facts, policy and plan to findings with evidence.

They do no I/O. A new check is one function and one entry in ``registry``. Its text is in ``text``.
"""
