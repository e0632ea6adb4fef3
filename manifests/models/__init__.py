"""The models that the manifests of this folder declare: PyTorch alone, no downloads."""
