"""The command `ops --measure`: calls of each operator, exported and compared with PyTorch."""
