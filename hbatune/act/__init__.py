"""The only room that writes: settings, through disposable workers, and hbatune's own files.

Nothing here decides what is wanted (``plan``) or prints anything (``cli``).
"""
