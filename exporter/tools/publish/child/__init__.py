"""The child process of a publication, which imports onnx and the runtimes."""
