"""What is generated from the code: pages, tables and schemas (`make docs`). Not in the wheel."""
