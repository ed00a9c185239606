"""What can be set: one table of settings, and what the device at hand allows each to be. Pure.

``setting`` has the types, ``limits`` and ``affinity`` the limits of devices, ``table`` the settings
themselves, ``resolve`` the questions that plans and workers ask. Nothing here reads or writes.
"""

from hbatune.settings.table import SETTINGS, Setting, Value, attributes, setting

__all__ = ["SETTINGS", "Setting", "Value", "attributes", "setting"]
