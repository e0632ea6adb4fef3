"""From the declared input sets to the tensors of a call."""
