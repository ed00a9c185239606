"""The daemon: it tunes new devices, repairs drift, and steps aside for administrators and tools.

``loop`` listens and waits. ``schedule`` decides when the next pass is due and keeps the results
that it needs of earlier passes. Each pass runs in a separate process (``passes``, ``child``), so a
hanging pass cannot block the daemon or fill its memory. Only a pass writes. Text for people is in
``text``.
"""
