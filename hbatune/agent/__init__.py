"""Keeping it so: the daemon tunes what appears, mends what drifts, and steps aside where it must.

The daemon itself only listens and waits. Each pass over the machine runs in a process of its own
(``pass_``, ``child``), so that nothing that hangs keeps it from answering, and nothing stays behind
in its memory.
"""
