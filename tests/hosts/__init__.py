"""Described machines, read for real."""
