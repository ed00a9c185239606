"""Read the facts of a machine from udev and sysfs into frozen values.

No other package reads sysfs, and this one never writes. A fact that could not be read is a
``Missing`` with the reason, never an empty string or a zero.
"""
