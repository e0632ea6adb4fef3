"""The comparison of a file's outputs with PyTorch's outputs."""
