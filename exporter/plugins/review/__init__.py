"""The review of a difference: whether PyTorch itself rounds as far in another order."""
