"""Checks that read the file without running it."""
