"""The command `repro`: a folder that shows the failure of a cell without this tool.

Input: a model's contract, the record of one cell and its build folder. Output: a script that needs
only torch, onnx and the runtime, the model's files, frozen inputs and a README. Nothing is imported
or run here.
"""

from exporter.tools.repro.repro_folder import ReproducedCell, write_reproducer

__all__ = ["ReproducedCell", "write_reproducer"]
