"""The commands `record` and `add`: from observed calls to entries with a verdict."""
