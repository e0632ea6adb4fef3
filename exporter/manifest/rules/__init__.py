"""The rules that need several keys: each module resolves one group of keys of an entry."""
