"""Apply a profile at boot: the udev rules compiled from it, and the installed files.

A rule never sets a value that the plan would not set. The daemon handles cases that udev cannot
distinguish.
"""
