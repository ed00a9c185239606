"""Generators of pages, tables, schemas and packages (`make docs`). Not in the wheel."""
