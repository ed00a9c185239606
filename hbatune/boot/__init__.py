"""Keeping a profile from boot on: udev rules compiled from it, and the files that are installed."""
