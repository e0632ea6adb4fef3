"""The child processes of optional commands, which may import torch, onnx or numpy."""
