"""A file as people read it: ONNX's own text, or a page of HTML; in a process that has onnx.

In: the path of a `.onnx` file. Out: text on stdout.
"""
