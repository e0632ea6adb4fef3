"""The command line: the only package that prints, exits and reads the environment."""

from exporter.cli.entry_point import main

__all__ = ["main"]
