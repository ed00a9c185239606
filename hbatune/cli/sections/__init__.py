"""The sections of `report` in words: one module for each, from what was seen to parts of a page."""
