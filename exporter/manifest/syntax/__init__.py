"""The small notations of manifests: call paths, opset ranges, tensor files, values in messages."""
