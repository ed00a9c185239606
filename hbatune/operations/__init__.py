"""What hbatune does, each from the lock to the journal, for commands and the daemon alike.

An operation takes a context (``context``), tells on its way what a person should know as typed
notes (``notes``), and returns values. It has no words for people, chooses no exit code, and imports
neither ``cli`` nor ``agent``.
"""
