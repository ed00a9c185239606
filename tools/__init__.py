"""What is run on a checkout and never installed: the generators of pages and schemas."""
