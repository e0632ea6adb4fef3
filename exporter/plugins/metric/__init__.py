"""The key `metric`: a figure of the project, such as an accuracy, of PyTorch and of the file."""
