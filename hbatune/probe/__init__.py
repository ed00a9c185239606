"""Measures what settings do: short fio runs, read-only unless a disk was named for writing.

It may not write to a device that was not named, and it changes no settings itself.
"""
