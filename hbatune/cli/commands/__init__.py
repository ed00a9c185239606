"""The commands, one module each: arguments, the call of an operation, output, exit code."""
