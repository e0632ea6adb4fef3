"""Basic parts that depend on neither manifests nor ONNX."""
