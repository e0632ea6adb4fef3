"""The values and files that the parent and the workers exchange."""
