"""The command `gc`: remove files that no entry needs, and entries of the store."""
