"""Watches storage now: latency, load, errors, alerts and metrics.

It changes no settings. ``latency`` runs bpftrace, ``exporter`` publishes metrics; the rest is pure.
"""
