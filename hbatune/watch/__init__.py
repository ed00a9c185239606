"""Watches storage now: latency, load, errors, alerts and metrics.

It changes no settings. All modules but ``collect`` and ``exporter`` are pure or only read a file.
"""
