"""Builds every ONNX file that a manifest promises, and proves each promise on the file."""
