"""Measure the effects of settings with short fio runs.

A run only reads, unless a disk was named for writing.

It may not write to a device that was not named, and it changes no settings itself.
"""
