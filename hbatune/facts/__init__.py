"""What is there: udev and sysfs, read once into frozen values.

No other room reads sysfs, and nothing here writes. What could not be read is a ``Missing`` that
says why, never an empty string or a zero.
"""
