"""Optional commands, which the flow from manifest to gate does not need.

Each package is one command. A module that imports torch, onnx or a runtime is in its subpackage
`child`, which runs as a child process.
"""
