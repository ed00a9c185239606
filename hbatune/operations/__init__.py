"""The operations of hbatune, each from the lock to the journal, for commands and for the daemon.

An operation takes a context and reports typed notes (``context``), and returns values.
It has no text for users, chooses no exit code, and imports neither ``cli`` nor ``agent``.
"""
