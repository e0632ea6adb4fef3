"""The command line: the only package that prints, exits and reads environment variables."""

from exporter.cli.entry_point import main

__all__ = ["main"]
