"""The models that the manifests of this folder declare: only PyTorch, no downloads."""
