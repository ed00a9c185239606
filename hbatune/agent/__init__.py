"""Keeping it so: the daemon tunes what appears, mends what drifts, and steps aside where it must.

``loop`` only listens and waits: ``agenda`` is what it has still to look at, ``experience`` what
came of it. Each pass over the machine runs in a process of its own (``passes``, ``child``), so
that nothing that hangs keeps it from answering, and nothing stays behind in its memory.
"""
