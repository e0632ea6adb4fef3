"""The commands: each module parses options, calls a use case and prints the result."""
