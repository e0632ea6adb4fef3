"""The child process of `verify`, which imports onnx and the runtimes."""
