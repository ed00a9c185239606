"""What is wanted: rules and profiles from TOML, validated, with their sources."""
