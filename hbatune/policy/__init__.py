"""The wanted values: rules and profiles from TOML, validated, with their sources.

Only files of rules and configuration are read here, and nothing is written. A mistake in a file
becomes a ``PolicyError``, which names file, line and key.
"""
