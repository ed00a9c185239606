"""The settings: one table of them, and the values that the device at hand takes. Pure.

``setting`` has the types, ``limits`` the limits of devices, ``table`` the settings themselves,
``resolve`` the entry points for plans and workers. Nothing here reads or writes.
"""

from hbatune.settings.table import SETTINGS, Setting, Value, attributes, setting

__all__ = ["SETTINGS", "Setting", "Value", "attributes", "setting"]
