"""The command `show`: the graph of a file as text."""
