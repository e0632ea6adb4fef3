"""Checks that run the file, or decide if a run proves anything."""
