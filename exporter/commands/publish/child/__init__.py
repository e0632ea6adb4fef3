"""The child process of a publication."""
