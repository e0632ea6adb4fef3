"""Decide whether stored results are up to date; docs/architecture.md describes the files."""
