"""The operations of hbatune, each from the lock to the journal, for commands and the daemon alike.

An operation takes a context and reports typed notes (``context``), and returns values.
It has no words for people, chooses no exit code, and imports neither ``cli`` nor ``agent``.
"""
