"""The sections of the report: from what was read to parts of the page."""
