"""What can be set: one table of settings, and what the device at hand allows each to be."""

from hbatune.settings.table import SETTINGS, Setting, Value, attributes, setting

__all__ = ["SETTINGS", "Setting", "Value", "attributes", "setting"]
