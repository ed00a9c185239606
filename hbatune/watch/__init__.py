"""Watch storage: current latency, load, errors, alerts and metrics. It changes no settings."""
