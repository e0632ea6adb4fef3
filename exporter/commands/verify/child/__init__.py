"""The child process of `verify`: checks of a published folder, and of a file against a file."""
