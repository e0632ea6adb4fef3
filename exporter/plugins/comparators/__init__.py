"""The key `compare` of an output: a comparison in place of its tolerance."""
