"""The hardware that a load needs by the documents' figures, and the depth of LUNs on an array."""
