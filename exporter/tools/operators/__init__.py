"""The command `ops`: the operators that the exporters support, and those that a model lacks."""
