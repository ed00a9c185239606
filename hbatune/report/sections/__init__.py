"""The sections of the report: each turns the data into one part of the page."""
