"""What a wanted load asks for by the documents' figures, and how deep LUNs may be on an array."""
