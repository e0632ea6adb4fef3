"""The conversion of one opset: from a captured program or a module to an ONNX graph."""

from __future__ import annotations

import inspect
import logging
import re
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import onnx_ir as ir
import torch

from exporter.manifest import ModelSpec
from exporter.manifest.rules.layers import FUNCTIONS
from exporter.manifest.rules.sources import list_torch_options
from exporter.manifest.syntax.values import is_positional_call
from exporter.records.record import TRACER_PREFIX, Stage
from exporter.worker.dependencies.source_files import find_frame_line
from exporter.worker.export.graph_names import separate_aliased_outputs, write_declared_sizes
from exporter.worker.inputs.call import Call, Tensors, build_call, build_tensor_call
from exporter.worker.model.call_objects import (
    NO_CUSTOM_OPS,
    WRAPPED_NAME,
    CustomOps,
    has_object_outputs,
)
from exporter.worker.model.exported_program import find_program, order_leaves
from exporter.worker.model.model_kinds import Model, ScriptedFunction, is_compiled
from exporter.worker.process.failure import Failure, format_message, wrap_errors
from exporter.worker.process.setup import apply_state
from exporter.worker.torch_private import export_speedups as speedups
from exporter.worker.torch_private import internals
from exporter.worker.torch_private.graph_operators import Decompositions
from exporter.worker.torch_private.internals import TracerWarning, is_fake, restore_module_hooks


@contextmanager
def collect_tracer_warnings(root: Path) -> Iterator[list[str]]:
    """Collect the tracer's warnings as notes, each once with its count, until the context ends."""
    notes: list[str] = []
    counts: Counter[str] = Counter()

    def record_warning(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        # The cell's log contains all warnings, including those of the tracer.
        text = warnings.formatwarning(message, category, filename, lineno, line)
        (file or sys.stderr).write(text)
        if issubclass(category, TracerWarning):
            first = str(message).strip().splitlines()[0]
            source = find_frame_line(traceback.walk_stack(None), root)
            source = source or f"{Path(filename).name}:{lineno}"
            counts[format_message(f"{TRACER_PREFIX}{source}: {first}")] += 1

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.simplefilter("always", TracerWarning)
        warnings.showwarning = record_warning
        try:
            yield notes
        finally:
            notes += [f"{note} ({n} times)" if n > 1 else note for note, n in counts.items()]


_LOGGER = "onnxscript.version_converter"
#: `.../BaseConverter.h:66: adapter_lookup: Assertion `false` failed: No Adapter ...`
_ASSERTION = re.compile(r"^\S*?(\w+)\.h:\d+: .*?Assertion .*? failed: (.*)", re.DOTALL)
_NO_ADAPTER = re.compile(r"No Adapter (From|To) Version \$?(\d+) for (\S+)")
_NO_OLDER = re.compile(r"No Previous Version of (\S+) exists")
_SKIPPED = re.compile(
    r"Skipping version conversion for node (\S+) due to exception: (.*)", re.DOTALL
)


@contextmanager
def collect_converter_warnings() -> Iterator[list[str]]:
    """Collect the errors of the converter while the context is active, each once.

    dynamo writes opset 18. If the conversion to another opset fails, the file remains at 18 or a
    node keeps its old meaning, and only the log has a message.
    """
    handler = _NoteHandler()
    logger = logging.getLogger(_LOGGER)
    logger.addHandler(handler)
    try:
        yield handler.notes
    finally:
        logger.removeHandler(handler)


class _NoteHandler(logging.Handler):
    def __init__(self) -> None:
        super().__init__(level=logging.WARNING)
        self.notes: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            note = f"the version converter {_translate(str(error))}"
        elif match := _SKIPPED.search(record.getMessage()):
            operator, reason = match.groups()
            note = f"the version converter did not convert a node {operator}: {reason}"
        else:
            return
        if format_message(note) not in self.notes:
            self.notes.append(format_message(note))


def _translate(text: str) -> str:
    """Return the reason of a failed conversion in clear words, if the text is known."""
    if match := _NO_ADAPTER.search(text):
        return f"cannot convert {match[3]} {match[1].lower()} opset {match[2]}"
    if match := _NO_OLDER.search(text):
        return f"cannot lower {match[1]}: lower opsets have no such operator"
    if match := _ASSERTION.match(text):
        # The name of the adapter describes its work, such as `axes_input_to_attribute`.
        return f"fails in {match[1]}: {match[2]}"
    return f"fails: {text}"


class PositionalModule(torch.nn.Module):
    """Calls the wrapped module with each tensor at the path of its `at`.

    With keyword arguments or constants, the tracer creates a graph input for every Python number.
    It also sorts inputs by the signature of `forward`.
    """

    def __init__(self, model: torch.nn.Module, spec: ModelSpec) -> None:
        super().__init__()
        self.add_module(WRAPPED_NAME, model)
        self.train(model.training)
        self._spec = spec
        self._flattens_outputs = has_object_outputs(model)

    def forward(self, *tensors: torch.Tensor) -> Any:
        """Return the outputs of the wrapped module; of objects, their tensors."""
        names = [item.name for item in self._spec.inputs]
        leaves = dict(zip(names, tensors, strict=True))
        call = build_call(self._spec, leaves, lambda value: value)
        returned = self.get_submodule(WRAPPED_NAME)(*call.args, **call.kwargs)
        if not self._flattens_outputs:
            return returned
        return tuple(leaf for leaf in internals.tree_leaves(returned) if leaf is not None)


def needs_wrapping(spec: ModelSpec, model: Model) -> bool:
    """Return True if the call has more than positional tensors, or would not be traced."""
    others = bool(spec.constants or spec.containers) or any(item.scalar for item in spec.inputs)
    is_positional = is_positional_call((item.at for item in spec.inputs), others=others)
    if not is_positional or has_object_outputs(model):
        return True
    exportable = getattr(torch.onnx, "ExportableModule", None)  # since torch 2.11
    if exportable is not None and isinstance(model, exportable):
        return True
    try:
        parameters = inspect.signature(getattr(model, "forward", model)).parameters.values()
    except (TypeError, ValueError):  # no readable signature
        return False
    return any(isinstance(parameter.default, int | float) for parameter in parameters)


def unwrap_names(ir_model: ir.Model) -> None:
    """Restore the names that the weights have in the model itself."""
    prefix = f"{WRAPPED_NAME}."
    for name, value in list(ir_model.graph.initializers.items()):
        bare = name
        while bare.startswith(prefix):  # wrappers may be nested
            bare = bare.removeprefix(prefix)
        if bare != name:
            value.name = bare


#: Options that dynamo's exporter has, and that the writer of the file applies.
_WRITER_OPTIONS = ("export_params", "keep_initializers_as_inputs")


@dataclass(frozen=True, slots=True)
class _NamedLeaf:
    """The name of an input at the place of its tensor in a call."""

    name: str


def convert_program(
    program: Any,
    spec: ModelSpec,
    opset: int,
    artifacts: Path,
    decompositions: Decompositions,
    custom: CustomOps = NO_CUSTOM_OPS,
) -> ir.Model:
    """Convert a captured program by the public dynamo exporter, or raise a failure of `convert`.

    `artifacts`: The folder for reports that the options request.
    """
    converted = translate_program(program, spec, opset, artifacts, decompositions, custom)
    ir_model: ir.Model = converted.model
    with wrap_errors(Stage.CONVERT):
        for value in ir_model.graph.initializers.values():
            if is_fake(getattr(value.const_value, "raw", None)):
                raise ValueError(f"the capture stored {value.name} as a constant without values")
    outputs = [item.name for item in spec.outputs]
    separate_aliased_outputs(ir_model, _list_program_inputs(program, spec), outputs)
    unwrap_names(ir_model)
    return ir_model


def translate_program(
    program: Any,
    spec: ModelSpec,
    opset: int,
    artifacts: Path,
    decompositions: Decompositions,
    custom: CustomOps = NO_CUSTOM_OPS,
) -> Any:
    """Return the `torch.onnx.ONNXProgram`, which also contains the decomposed program."""
    arguments: dict[str, Any] = list_torch_options(spec, "dynamo")
    options = {name: each for name, each in arguments.items() if name not in _WRITER_OPTIONS}
    with (
        wrap_errors(Stage.CONVERT),
        decompositions.reuse(),
        speedups.speed_up_conversion(),
        # A program that was captured without gradients often decomposes only without them.
        apply_state(spec),
    ):
        converted = torch.onnx.export(
            program,
            input_names=_list_program_inputs(program, spec),
            output_names=[item.name for item in spec.outputs],
            opset_version=opset,
            dynamo=True,
            artifacts_dir=artifacts,
            custom_translation_table=dict(custom.get_translations(opset)) or None,
            **options,
        )
    if converted is None:
        raise TypeError("torch.onnx.export returned no program under dynamo")
    return converted


def convert_module(
    model: Model,
    spec: ModelSpec,
    inputs: Tensors,
    opset: int,
    scratch: Path,
    custom: CustomOps = NO_CUSTOM_OPS,
) -> tuple[ir.Model, tuple[str, ...]]:
    """Trace or script a module and convert it by the TorchScript exporter.

    The result has the graph, and notes about warnings of the tracer and unknown shapes. The
    temporary file `scratch` may have external data in its folder.
    """
    _require_supported(model, spec)
    wraps = needs_wrapping(spec, model) or _has_script_parts(model)
    if wraps and spec.capture != "script" and not isinstance(model, ScriptedFunction):
        model = PositionalModule(model, spec)
        call = Call(args=tuple(tensor.clone() for tensor in inputs.values()), kwargs={})
        names = [item.name for item in spec.inputs]
    else:
        call = build_tensor_call(spec, inputs)
        names = _list_call_inputs(spec, model)
    scratch.parent.mkdir(parents=True, exist_ok=True)
    with (
        wrap_errors(Stage.CONVERT),
        custom.register_symbolics(opset),
        collect_tracer_warnings(Path()) as notes,
        speedups.detach_weights() as weights,
        apply_state(spec),
        restore_module_hooks(model),
    ):
        if _has_script_parts(model):
            # The tracer of torch.onnx rejects such parts; `torch.jit` keeps their control flow.
            trace: Callable[..., Model] = torch.jit.trace  # torch gives it no types
            model = trace(model, call.args, strict=False, check_trace=False)
        torch.onnx.export(
            model.function if isinstance(model, ScriptedFunction) else model,
            # torch.onnx uses a last dict for keyword arguments, unless an empty one follows it.
            call.args if call.kwargs else (*call.args, {}),
            str(scratch),
            kwargs=call.kwargs or None,
            input_names=names,
            output_names=[item.name for item in spec.outputs],
            opset_version=opset,
            dynamic_axes=spec.dynamic_axes,
            dynamo=False,
            **_resolve_torchscript_options(spec),
        )
        graph = ir.load(scratch)
        # The state of the model is restored before the file is written.
        speedups.restore_weights(graph, weights, model.buffers())
    unwrap_names(graph)
    if spec.options.get(FUNCTIONS) and len(graph.graph.outputs) == len(spec.outputs):
        # By position: torch loses the names if a function returns the outputs.
        for value, item in zip(graph.graph.outputs, spec.outputs, strict=True):
            value.name = item.name
    return graph, (*notes, *write_declared_sizes(graph, spec))


def _require_supported(model: Model, spec: ModelSpec) -> None:
    """Fail early with a clear message; TorchScript's own messages are misleading."""
    if find_program(model) is not None:
        raise Failure(
            Stage.CAPTURE,
            f"{spec.source}: TorchScript exports modules, got an ExportedProgram; "
            "set exporter = 'dynamo'",
        )
    for side, items in (("input", spec.inputs), ("output", spec.outputs)):
        for item in items:
            if item.is_complex:
                message = (
                    f"TorchScript exports no complex numbers: {side} '{item.name}' is "
                    f"{item.dtype}; use dynamo, which writes them as pairs from opset 18 on"
                )
                raise Failure(Stage.CONVERT, message)


def _has_script_parts(model: Model) -> bool:
    """Return True if a module has submodules that TorchScript compiled, but is not compiled."""
    return not is_compiled(model) and any(map(is_compiled, model.modules()))


def _resolve_torchscript_options(spec: ModelSpec) -> dict[str, Any]:
    options: dict[str, Any] = list_torch_options(spec, "torchscript")
    if isinstance(options.get(FUNCTIONS), list):
        del options[FUNCTIONS]  # only `resolve_function_types` can load the types
    options["training"] = getattr(torch.onnx.TrainingMode, str(options["training"]))
    if "operator_export_type" in options:
        kind = str(options["operator_export_type"])
        options["operator_export_type"] = getattr(torch.onnx.OperatorExportTypes, kind)
    return options


def _list_program_inputs(program: Any, spec: ModelSpec) -> list[str]:
    """Return input names in the order of a program, even if its own call differs."""
    leaves = {item.name: _NamedLeaf(item.name) for item in spec.inputs}
    call = build_call(spec, leaves, lambda _: None)
    ordered = order_leaves(program, call.args, call.kwargs)
    if ordered is None:
        return _list_call_inputs(spec, None)
    return [leaf.name for leaf in ordered if isinstance(leaf, _NamedLeaf)]


def _list_call_inputs(spec: ModelSpec, model: Model | None) -> list[str]:
    """Return input names in the order of the exporter.

    torch.onnx assigns names by position. Dynamo flattens the call as it is. TorchScript binds it to
    the signature of `forward` first, which changes the order of keyword arguments.
    """
    leaves = {item.name: _NamedLeaf(item.name) for item in spec.inputs}
    call = build_call(spec, leaves, lambda _: None)
    ordered: Any = (call.args, call.kwargs)
    if call.kwargs and model is not None:
        try:
            bound = inspect.signature(model.forward).bind(*call.args, **call.kwargs)
            ordered = dict(bound.arguments)
        except (TypeError, ValueError):  # no readable signature: the order of the call remains
            pass
    return [leaf.name for leaf in internals.tree_leaves(ordered) if isinstance(leaf, _NamedLeaf)]
