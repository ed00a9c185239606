"""Find the best depth and the best candidate setting with few probes.

Pure: a search returns the next probe, receives its measurement and ends with an answer. The caller
makes the probes and sets the settings. `make soak` counts on simulated devices how often the answer
is right (depth_search.json and tournament.json in tests/soak/results).
"""
