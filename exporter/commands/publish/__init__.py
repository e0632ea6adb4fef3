"""The command `publish`: proved files as self-contained folders for other tools."""
