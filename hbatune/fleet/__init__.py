"""Many hosts, and two, by their snapshots: what they have, what they drift in, who differs."""
