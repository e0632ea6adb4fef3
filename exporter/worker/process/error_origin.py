"""The operator and the model's line behind an exception.

Exporters process a graph node by node, and most of their exceptions name no node. Frames of the
traceback contain it: as an argument, or as the variable of the loop that was interrupted. This
module imports no exporter: if none is loaded, no frame has a node.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from exporter.worker.dependencies.path_groups import find_model_file

#: `File "/x/models.py", line 8, in forward`, outermost first: dynamo's metadata.
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
#: `/x/models.py(8): forward`, innermost first: TorchScript's source ranges.
_RANGE = re.compile(r"^(?P<file>[^\n(]+)\((?P<line>\d+)\)", re.MULTILINE)
#: `File "/x/models.py", line 8` of scripted code, and `/x/models.py:8:4` before it.
_SCRIPTED = re.compile(r"^(?P<file>[^\n:]+\.py):(?P<line>\d+)", re.MULTILINE)


def find_source_line(trace: str, root: Path) -> str:
    """Return the innermost line of the project or of a package with models.

    Returns:
        "" if all lines are those of torch, of other tools or of Python.
    """
    if frames := _FRAME.findall(trace):
        frames.reverse()
    else:
        frames = _RANGE.findall(trace) or _SCRIPTED.findall(trace)
    for file, line in frames:
        if path := find_model_file(file, root):
            return f"{path}:{line}"
    return ""


def find_node_line(node: Any, root: Path) -> str:
    """Return the line of the model behind a node of any graph, or "" if the node has none."""
    from exporter.worker.torch_private.export_speedups import STACK_TRACE_KEY  # loads torch

    if hasattr(node, "metadata_props"):  # of a file; TorchScript writes it as documentation
        trace = node.metadata_props.get(STACK_TRACE_KEY) or node.doc_string or ""
    elif hasattr(node, "meta"):  # of a captured program
        trace = node.meta.get("stack_trace") or ""
    else:  # of a traced graph
        trace = str(node.sourceRange())
    return find_source_line(trace, root)


#: The classes of nodes: of a captured program, of a file, and of a traced graph.
_NODE_CLASSES = (("torch.fx", "Node"), ("onnx_ir", "Node"), ("torch", "Node"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorOrigin:
    """The place of an exception; a field is empty if it is unknown."""

    operator: str = ""
    """`aten.add.Tensor`, `aten::add` or `Add`."""
    line: str = ""
    """`models/vision.py:31`."""


def find_origin(error: BaseException, root: Path) -> ErrorOrigin:
    """Return the node that was processed, or else the innermost line of the model."""
    causes = list(_list_causes(error))
    node = next((node for cause in causes for node in _find_nodes(cause)), None)
    operator = format_operator(node) if node is not None else ""
    line = find_node_line(node, root) if node is not None else ""
    if not line:
        lines = (line for cause in causes for line in _find_lines(cause, root))
        line = next(lines, "")
    return ErrorOrigin(operator=operator, line=line)


def format_operator(node: Any) -> str:
    """Return the operator of a node of any graph, or "" for an input or an output."""
    if hasattr(node, "op_type"):
        return f"{node.domain}::{node.op_type}" if node.domain else str(node.op_type)
    if hasattr(node, "target"):
        return str(node.target) if node.op == "call_function" else ""
    return str(node.kind())


def _list_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the innermost cause first."""
    causes: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in causes:
        causes.append(current)
        current = current.__cause__
    yield from reversed(causes)


def _find_nodes(error: BaseException) -> Iterator[Any]:
    """Yield the nodes that the frames process, the innermost frame first."""
    frames = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    for frame, line in reversed(frames):
        names = _list_arguments(frame.f_code)
        if not any(_is_node(frame.f_locals.get(name)) for name in names):
            names = tuple(_list_loop_variables(frame, line))
        for name in names:
            node = frame.f_locals.get(name)
            if _is_node(node) and format_operator(node):
                yield node


def _is_node(value: Any) -> bool:
    loaded = ((sys.modules.get(module), name) for module, name in _NODE_CLASSES)
    return any(module and isinstance(value, getattr(module, name)) for module, name in loaded)


def _list_arguments(code: CodeType) -> tuple[str, ...]:
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _list_loop_variables(frame: FrameType, line: int) -> Iterator[str]:
    """Yield the variables of all loops around a line; another variable may be outdated."""
    if not any(_is_node(value) for value in frame.f_locals.values()):
        return
    try:
        lines, first = inspect.getsourcelines(frame.f_code)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, SyntaxError, TypeError):  # generated code has no source
        return
    # The source of a module starts at line 0, and that of a function at its first line.
    inside = line - max(first, 1) + 1
    for loop in ast.walk(tree):
        if isinstance(loop, ast.For) and loop.lineno <= inside <= (loop.end_lineno or 0):
            yield from (name.id for name in ast.walk(loop.target) if isinstance(name, ast.Name))


def _find_lines(error: BaseException, root: Path) -> Iterator[str]:
    """Yield the lines of the model on the traceback, the innermost first."""
    frames = list(traceback.walk_tb(error.__traceback__))
    for frame, line in reversed(frames):
        if path := find_model_file(frame.f_code.co_filename, root):
            yield f"{path}:{line}"
