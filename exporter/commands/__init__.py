"""The parts that only one command needs; no other package imports them.

In a package, `command` has its commands, and `child` the programs of its child processes, which may
import torch, onnx or a runtime.
"""
