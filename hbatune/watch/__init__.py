"""What the machine does now: latency, load, errors, alerts and metrics. Pure but for `collect`."""
