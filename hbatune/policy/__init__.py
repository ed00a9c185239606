"""What is wanted: rules and profiles from TOML, validated, with their sources.

Only files of rules and configuration are read here, and nothing is written. What a mistake in a
file looks like to a person is decided here, too: ``PolicyError`` names file, line and key.
"""
