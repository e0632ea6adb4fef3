"""The child process that imports onnx to render a graph."""
