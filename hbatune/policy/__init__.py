"""Profile values: rules and profiles from TOML, validated, with their sources."""
