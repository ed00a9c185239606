"""The table of settings, and the values that a device accepts. Pure.

``setting`` has the types, ``limits`` the limits of devices, ``table`` the settings themselves.
"""
