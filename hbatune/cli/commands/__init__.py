"""The commands, one file each: arguments, the operation, what is printed, the exit code."""
