"""The command `verify`: proof of an existing file, in a folder of `publish` or anywhere."""
