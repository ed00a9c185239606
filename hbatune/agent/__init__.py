"""The daemon: it tunes new devices, repairs drift, and steps aside for administrators and tools.

``loop`` listens and waits: ``schedule`` says when the next pass is due, and keeps what it needs of
earlier ones. Each pass over the machine runs in a process of its own (``passes``, ``child``), so
that nothing that hangs keeps the daemon from answering, and nothing stays behind in its memory.
Only a pass writes; this room has no text for people (``cli``).
"""
