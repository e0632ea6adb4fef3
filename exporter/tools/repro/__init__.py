"""A cell as a folder that shows its failure without us: what a maintainer takes as an issue.

In: a model's contract, the record of one cell, and what lies in its build folder. Out: one script
that needs torch, onnx and onnxruntime alone, the model's files, frozen inputs, and a README. Text
and copies: nothing is imported or run here.
"""

from exporter.tools.repro.repro_folder import ReproducedCell, write_reproducer

__all__ = ["ReproducedCell", "write_reproducer"]
