"""Watch storage: current latency, load, errors, alerts and metrics.

It changes no settings. ``latency`` runs bpftrace and ``exporter`` publishes metrics; the other
modules are pure.
"""
