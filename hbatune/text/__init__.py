"""Tables and sentences that several commands print. It decides nothing and writes no files."""
