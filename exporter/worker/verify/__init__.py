"""Checks of exported files and the records with their results."""
