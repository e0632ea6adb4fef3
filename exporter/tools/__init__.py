"""Commands beside the way from manifest to gate.

Each package is one command. A module that imports torch, onnx or a runtime is in its subpackage
`child`, which runs as a child process.
"""
