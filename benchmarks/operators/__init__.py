"""The measurement of operators: calls of torch's own tests, exported and compared with PyTorch."""
