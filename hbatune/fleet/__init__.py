"""Compare two or many hosts by their snapshots: inventory, drift and differences."""
