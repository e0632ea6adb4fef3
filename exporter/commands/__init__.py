"""Optional things, above the way from manifest to gate: no module of it may import them.

Each module or package is one thing. In a package, `command` has its commands, and `child` the
programs of its child processes, which may import torch, onnx or a runtime.
"""
