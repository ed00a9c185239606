"""Profile values: rules and profiles from TOML, validated, with their sources.

This package reads only rule and configuration files, and writes nothing. An invalid file raises
``PolicyError``, which names file, line and key.
"""
