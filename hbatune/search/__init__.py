"""Find the best depth and the best candidate setting with few probes. Pure.

`make soak` counts on simulated devices how often the answer is right (depth_search.json and
tournament.json in tests/soak/results).
"""
