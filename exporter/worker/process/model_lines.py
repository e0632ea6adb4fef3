"""Lines of the model: behind an exception, a node of a graph, or an obstacle of a capture."""

from __future__ import annotations

import ast
import inspect
import linecache
import re
import sys
import textwrap
import traceback
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import FrameType
from typing import Any

from exporter.core.text import shorten
from exporter.records.record import Stage
from exporter.worker.dependencies.source_files import find_frame_line, find_model_file
from exporter.worker.torch_private import STACK_TRACE_KEY

#: `File "/x/models.py", line 8, in forward`, outermost first: dynamo's metadata.
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
#: `/x/models.py(8): forward`, innermost first: TorchScript's source ranges.
_RANGE = re.compile(r"^(?P<file>[^\n(]+)\((?P<line>\d+)\)", re.MULTILINE)
#: `File "/x/models.py", line 8` of scripted code, and `/x/models.py:8:4` before it.
_SCRIPTED = re.compile(r"^(?P<file>[^\n:]+\.py):(?P<line>\d+)", re.MULTILINE)


def find_source_line(trace: str, root: Path) -> str:
    """Return the innermost line of the project or of a package with models, or "".

    Exporters process a graph node by node, and most of their exceptions name no node. Frames of the
    traceback contain it: as an argument, or as the variable of the loop that was interrupted. This
    module imports no exporter: if none is loaded, no frame has a node.
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
    if hasattr(node, "metadata_props"):  # of a file; TorchScript writes it as documentation
        trace = node.metadata_props.get(STACK_TRACE_KEY) or node.doc_string or ""
    elif hasattr(node, "meta"):  # of a captured program
        trace = node.meta.get("stack_trace") or ""
    else:  # of a traced graph
        trace = str(node.sourceRange())
    return find_source_line(trace, root)


#: Characters of a quoted line.
_CODE_LENGTH = 80


def quote_line(line: str, root: Path) -> str:
    """Return `net.py:12: "x = int(x)"`, or the place alone if its file is not in the project."""
    file, _, number = line.rpartition(":")
    code = linecache.getline(str((root / file).absolute()), int(number)).strip()
    return f'{line}: "{shorten(code, _CODE_LENGTH)}"' if code else line


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
    causes = list(list_causes(error))
    node = next((node for cause in causes for node in _find_nodes(cause)), None)
    operator = format_operator(node) if node is not None else ""
    line = find_node_line(node, root) if node is not None else ""
    if not line:
        stacks = (reversed(list(traceback.walk_tb(cause.__traceback__))) for cause in causes)
        line = next(filter(None, (find_frame_line(frames, root) for frames in stacks)), "")
    return ErrorOrigin(operator=operator, line=line)


def format_operator(node: Any) -> str:
    """Return the operator of a node of any graph, or "" for an input or an output."""
    if hasattr(node, "op_type"):
        return f"{node.domain}::{node.op_type}" if node.domain else str(node.op_type)
    if hasattr(node, "target"):
        return str(node.target) if node.op == "call_function" else ""
    return str(node.kind())


def list_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the innermost cause first."""
    causes: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in causes:
        causes.append(current)
        # `__context__` is no cause: torch often raises inside of `except`.
        current = current.__cause__
    yield from reversed(causes)


def _find_nodes(error: BaseException) -> Iterator[Any]:
    """Yield the nodes that the frames process, the innermost frame first."""
    frames = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    for frame, line in reversed(frames):
        code = frame.f_code
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        if not any(_is_node(frame.f_locals.get(name)) for name in names):
            names = tuple(_list_loop_variables(frame, line))
        for name in names:
            node = frame.f_locals.get(name)
            if _is_node(node) and format_operator(node):
                yield node


def _is_node(value: Any) -> bool:
    loaded = ((sys.modules.get(module), name) for module, name in _NODE_CLASSES)
    return any(module and isinstance(value, getattr(module, name)) for module, name in loaded)


def _list_loop_variables(frame: FrameType, line: int) -> Iterator[str]:
    """Yield the variables of all loops around a line; another variable may be outdated."""
    if not any(_is_node(value) for value in frame.f_locals.values()):
        return
    try:
        lines, first = inspect.getsourcelines(frame.f_code)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, SyntaxError, TypeError, ValueError, RecursionError, MemoryError):
        # Generated code has no source.
        return
    # The source of a module starts at line 0, and that of a function at its first line.
    inside = line - max(first, 1) + 1
    for loop in ast.walk(tree):
        if isinstance(loop, ast.For) and loop.lineno <= inside <= (loop.end_lineno or 0):
            yield from (name.id for name in ast.walk(loop.target) if isinstance(name, ast.Name))


def find_failed_import(error: BaseException) -> tuple[str, ErrorOrigin] | None:
    """Return the installed package whose import fails, and the line of the project with it."""
    line = ""
    modules: list[str] = []
    for frame, number in traceback.walk_tb(error.__traceback__):
        if project_line := find_frame_line([(frame, number)], Path()):
            line, modules = project_line, []
        elif frame.f_code.co_name == "<module>":
            # A package may import another one later, when a name of it is read.
            modules.append(frame.f_globals.get("__name__", "").partition(".")[0])
    for package in reversed(modules if line else []):
        with suppress(PackageNotFoundError):  # code of the project
            versions = f"{package} {version(package)} beside torch {version('torch')}"
            return f"{versions}; install both from one index", ErrorOrigin(line=line)
    return None


def describe_origin(
    error: BaseException, message: str, stage: Stage
) -> tuple[str, tuple[str, ...]]:
    """Return the message with its operator or package, and the line of the model."""
    # The working folder of a worker is the root of the project.
    origin = find_origin(error, Path())
    # `add` for `aten.add.Tensor` and for `aten::add`.
    _, _, short = origin.operator.replace("::", ".").partition(".")
    if origin.operator and (short.partition(".")[0] or origin.operator) not in message:
        message = f"{message}; the operator is {origin.operator}"
    if stage is Stage.SOURCE and (failed := find_failed_import(error)):
        package, origin = failed
        message = f"{message} in the import of {package}"
    lines = (origin.line,) if origin.line else ()
    return message, lines


#: The end of a long expression is left out.
_MOST_CHARACTERS = 80


def list_obstacles(report: Iterable[Any], root: Path) -> tuple[str, ...]:
    """Return a line for each `DraftFailure` of a report; paths are relative to the root."""
    lines = (_describe_obstacle(failure, root) for failure in report)
    return tuple(dict.fromkeys(line for line in lines if line))


def _describe_obstacle(failure: Any, root: Path) -> str:
    """Return the line of one place, or "" if another one contains it."""
    data = failure.data
    trace = "\n".join(f'File "{file}", line {line}' for file, line, _ in failure.frames)
    source = find_source_line(trace, root)
    number = source.rpartition(":")[2]
    code = next((text for _, line, text in failure.frames if str(line) == number), "")
    prefix = f'{source}: "{code}"' if code else source or "a line outside of the model"
    expression = str(data.get("expr", ""))[:_MOST_CHARACTERS]
    match failure.kind:
        case "DATA_DEPENDENT_ERROR":
            return f"{prefix} depends on values: {expression} was {data.get('result')}"
        case "GUARD_ADDED" if data.get("prefix") != "runtime_assert":
            sizes = ", ".join(str(each) for each in data.get("symbol_to_sources", {}).values())
            return f"{prefix} limits sizes ({sizes}): {expression}"
        case "MISSING_FAKE_KERNEL":
            return f"the operator {data.get('op')} has no fake kernel; add one by register_fake"
        case "MISMATCHED_FAKE_KERNEL":
            return f"the fake kernel of {data.get('op')} is wrong: {data.get('reason')}"
    return ""
