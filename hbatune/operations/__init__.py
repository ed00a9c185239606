"""The operations of hbatune, each from the lock to the journal, for commands and the daemon alike.

An operation takes a context (``context``), reports typed notes on its way (``notes``), and returns
values. It has no words for people, chooses no exit code, and imports neither ``cli`` nor ``agent``.
"""
