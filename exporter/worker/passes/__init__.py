"""Passes over a file: each in a process of its own, and the name of the first wrong one."""
