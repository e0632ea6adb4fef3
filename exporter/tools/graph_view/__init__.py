"""The command `show`: the graph of a file as text or as a page of HTML."""
