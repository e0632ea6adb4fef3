"""Failures of a model, in distinction from failures of the worker."""

from __future__ import annotations

import ast
import inspect
import linecache
import re
import sys
import textwrap
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import FrameType
from typing import Any

from exporter.core.text import pluralize, redact, shorten
from exporter.records.record import Attempt, Stage, Status
from exporter.worker.dependencies.source_files import find_frame_line, find_model_file
from exporter.worker.torch_private import STACK_TRACE_KEY

#: `File "/x/models.py", line 8, in forward`, outermost first: dynamo's metadata.
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
#: `/x/models.py(8): forward`, innermost first: TorchScript's source ranges.
_RANGE = re.compile(r"^(?P<file>[^\n(]+)\((?P<line>\d+)\)", re.MULTILINE)
#: `File "/x/models.py", line 8` of scripted code, and `/x/models.py:8:4` before it.
_SCRIPTED = re.compile(r"^(?P<file>[^\n:]+\.py):(?P<line>\d+)", re.MULTILINE)


# Exporters process a graph node by node, and most of their exceptions name no node. Frames of the
# traceback contain it: as an argument, or as the variable of the loop that was interrupted. This
# module imports no exporter: if none is loaded, no frame has a node.
def find_source_line(trace: str, root: Path) -> str:
    """Return the innermost line of the project or of a package with models, or ""."""
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


def quote_line(line: str, root: Path) -> str:
    """Return `net.py:12: "x = int(x)"`, or the place alone if its file is not in the project."""
    file, _, number = line.rpartition(":")
    code = linecache.getline(str((root / file).absolute()), int(number)).strip()
    return f'{line}: "{shorten(code, _MESSAGE_LENGTH // 5)}"' if code else line


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


def _list_causes(error: BaseException) -> Iterator[BaseException]:
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
    except (OSError, SyntaxError, TypeError):  # generated code has no source
        return
    # The source of a module starts at line 0, and that of a function at its first line.
    inside = line - max(first, 1) + 1
    for loop in ast.walk(tree):
        if isinstance(loop, ast.For) and loop.lineno <= inside <= (loop.end_lineno or 0):
            yield from (name.id for name in ast.walk(loop.target) if isinstance(name, ast.Name))


#: The import path and the finders before any model was loaded.
_IMPORT_PATH, _FINDERS = tuple(sys.path), tuple(sys.meta_path)
_DETAIL_LINES = 30
#: Problems of an invalid entry that its message contains; the log has all of them.
_SHOWN_PROBLEMS = 4
_MESSAGE_LENGTH = 400
#: Errors of torch that wrap the cause and name only the step, which the stage shows too.
_WRAPPERS = re.compile(
    r"Failed to (export the model|decompose the FX graph|convert the exported program)"
    r"|Error when translating node "
)
#: First lines without the reason, which is the last line.
_INTRODUCTIONS = ("The following operation failed in the TorchScript interpreter",)


class Failure(Exception):
    """An error of the model at a stage; it becomes the record of every cell of the stage."""

    def __init__(
        self,
        stage: Stage,
        message: str,
        *,
        detail: str = "",
        status: Status = Status.ERROR,
        lines: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.stage = stage
        self.status = status
        self.message = message
        self.detail = detail
        self.lines = lines
        """The lines of the model at which it fails."""
        self.broken_pass = 0
        """The pass that failed, counted from 1."""
        self.attempts: tuple[Attempt, ...] = ()
        """All failed attempts, if there was more than one."""


def restore_import_path() -> None:
    """Put entries back that a model removed from the import path.

    Without them, this package finds neither its own modules nor the versions of packages.
    """
    current: object = sys.path
    if not isinstance(current, list):
        sys.path = []
    sys.path += [entry for entry in _IMPORT_PATH if entry not in sys.path]
    sys.meta_path += [finder for finder in _FINDERS if finder not in sys.meta_path]


def report_invalid_entry(problems: Sequence[str]) -> Failure:
    """Return the failure of a model with an invalid entry; its detail has all problems."""
    message = "; ".join(problems[:_SHOWN_PROBLEMS])
    if len(problems) > _SHOWN_PROBLEMS:
        others = pluralize(len(problems) - _SHOWN_PROBLEMS, "more problem")
        message += f" (and {others} in the log)"
    return Failure(Stage.SOURCE, message, detail="\n".join(problems))


@contextmanager
def wrap_errors(stage: Stage) -> Iterator[None]:
    """Convert every exception inside to a `Failure` of that stage."""
    try:
        yield
    except Failure:
        raise
    except Exception as error:
        status = Status.KILLED if isinstance(error, MemoryError) else Status.ERROR
        restore_import_path()  # reading the error may import modules
        message, detail = format_error(error), format_traceback_tail(error)
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
        raise Failure(stage, message, detail=detail, status=status, lines=lines) from error
    finally:
        restore_import_path()


def find_failed_import(error: BaseException) -> tuple[str, ErrorOrigin] | None:
    """Return the installed package whose import fails, and the line of the project with it."""
    frames = [*traceback.walk_tb(error.__traceback__)]
    names = [frame.f_globals.get("__name__", "") for frame, _ in frames]
    for index, (frame, number) in enumerate(frames[:-1]):
        line = find_frame_line([(frame, number)], Path())
        inside = [name for name in names[index + 1 :] if not name.startswith("importlib")]
        is_module = frames[index + 1][0].f_code.co_name == "<module>"
        if line and inside and (is_module or names[index + 1].startswith("importlib")):
            with suppress(PackageNotFoundError):  # code of the project
                package = inside[0].partition(".")[0]
                package = f"{package} {version(package)} beside torch {version('torch')}"
                return f"{package}; install both from one index", ErrorOrigin(line=line)
    return None


def format_error(error: BaseException) -> str:
    """Return the message of the innermost cause that is not a wrapper of torch."""
    messages = [_format_first_line(each) for each in _list_causes(error)]
    specific = [message for message in messages if not _WRAPPERS.search(message)]
    return format_message((specific or messages)[0])


def format_traceback_tail(error: BaseException) -> str:
    """Return the end of the traceback without the folders and addresses of this machine."""
    lines = "".join(traceback.format_exception(error)).rstrip().splitlines()
    return "\n".join(redact(line, limit=1000) for line in lines[-_DETAIL_LINES:])


def format_message(text: str) -> str:
    """Return `text` on one line, without the folders of this machine, with limited length."""
    return redact(" ".join(text.split()), limit=_MESSAGE_LENGTH)


def _format_first_line(error: BaseException) -> str:
    # A method `__str__` of the model can fail; this class handles it.
    text = str(traceback.TracebackException(type(error), error, None))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    name = type(error).__name__
    if not lines:
        return name
    # torch.export reports a conflict of sizes in the first line, and the sizes in a list below.
    reasons = [line.removeprefix("- ") for line in lines if line.startswith("- ")]
    if reasons and lines[0].startswith("Constraints violated"):
        return f"{name}: {lines[0].split('!')[0]}: {reasons[0]}"
    if reasons and lines[0].startswith("Found the following conflicts"):
        return f"{name}: {reasons[0]}"
    if lines[0].startswith(_INTRODUCTIONS):
        return lines[-1]
    text = lines[0]
    if text.endswith(":") and len(lines) > 1:
        text = f"{text} {lines[1]}"
    # torch.compile names its general complaint first, and the object of the complaint below.
    if explanation := next((line for line in lines if line.startswith("Explanation: ")), ""):
        text = f"{text}: {explanation.removeprefix('Explanation: ')}"
    return f"{name}: {text}"
