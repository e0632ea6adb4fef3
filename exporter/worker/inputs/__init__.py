"""Draw the tensors of a call from the input sets of an entry."""
