"""Finds the best depth and the best candidate setting with few probes.

Pure: a search says which probe it wants next, is given the measurement, and ends with an answer.
Whoever makes the probes and sets the settings is above. How often the answer is right is counted
on simulated devices (`make soak`: depth_search.json and tournament.json in tests/soak/results).
"""
