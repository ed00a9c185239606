"""The table of settings, and the values that a device accepts. Pure.

``setting`` has the types, ``limits`` the limits of devices, ``table`` the settings themselves,
``resolve`` the entry points for plans and workers. Nothing here reads or writes.
"""

from hbatune.settings.table import SETTINGS, Setting, Value, find_setting, list_attributes

__all__ = ["SETTINGS", "Setting", "Value", "find_setting", "list_attributes"]
