"""Applies a profile from boot on: the udev rules compiled from it, and the installed files.

A rule never sets a value that the plan would not set: cases that udev cannot tell apart are left
to the daemon.
"""
