"""Build every ONNX file that a manifest promises, and prove each promise on the file."""
