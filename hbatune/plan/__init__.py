"""The difference between what is there and what is wanted. Pure: nothing is read or written."""
