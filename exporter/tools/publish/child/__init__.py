"""What needs onnx and the runtimes to publish a file: its test data, and the proof that it moved.

A program of its own: `python -m exporter.tools.publish.child REQUEST.json`.
"""
