"""Keeping a profile from boot on: udev rules compiled from it, and the files that are installed.

A rule never sets what the plan would not set: what udev cannot see is left to the daemon.
"""
