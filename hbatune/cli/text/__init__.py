"""Tables and words that several commands print."""
