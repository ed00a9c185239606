"""The table of settings, and the values that a device accepts. Pure."""
