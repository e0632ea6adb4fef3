"""Readers of ONNX files, stored samples and weights."""
