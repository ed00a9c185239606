"""The facts of a machine: udev and sysfs, read once into frozen values.

No other room reads sysfs, and nothing here writes. A fact that could not be read is a ``Missing``
with the reason, never an empty string or a zero.
"""
