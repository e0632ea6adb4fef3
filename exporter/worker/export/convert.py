"""One opset of a model: from the captured program, or from the module, to an ONNX graph.

In: the model, its capture and an opset. Out: an `onnx_ir.Model` as the exporter made it, and notes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnx_ir as ir
import torch

from exporter.manifest import ModelSpec
from exporter.manifest.rules.exporters import WEIGHTS_AS_INPUTS
from exporter.records.record import Stage
from exporter.worker.export.aliased_outputs import separate_aliased_outputs
from exporter.worker.export.graph_names import write_declared_sizes
from exporter.worker.export.positional_module import PositionalModule, needs_wrapping, unwrap_names
from exporter.worker.export.tracer_warnings import collect_tracer_warnings
from exporter.worker.inputs.call import (
    Call,
    Tensors,
    build_call,
    build_tensor_call,
)
from exporter.worker.model.custom_ops import NO_CUSTOM_OPS, CustomOps
from exporter.worker.model.exported_program import find_program, order_leaves
from exporter.worker.model.source_loader import Model
from exporter.worker.process.failure import Failure, wrap_errors
from exporter.worker.torch_private import pytree
from exporter.worker.torch_private.decompositions import Decompositions
from exporter.worker.torch_private.detached_weights import restore_weights
from exporter.worker.torch_private.export_speedups import speed_up_conversion
from exporter.worker.torch_private.torchscript_export import detach_weights

_DYNAMO_OPTIONS = ("optimize", "verbose", "report", "profile", "dump_exported_program")
_TORCHSCRIPT_OPTIONS = (
    "verbose",
    "export_params",
    "keep_initializers_as_inputs",
    "do_constant_folding",
    "custom_opsets",
    "training",
    "operator_export_type",
    "autograd_inlining",
    "export_modules_as_functions",
)
#: The mode of the module during a TorchScript export, which sets it itself.
MODES = {"eval": "EVAL", "train": "TRAINING", "keep": "PRESERVE"}


def convert_program(
    program: Any,
    spec: ModelSpec,
    opset: int,
    artifacts: Path,
    kept: Decompositions,
    custom: CustomOps = NO_CUSTOM_OPS,
) -> ir.Model:
    """Translates a captured program by the public dynamo exporter.

    Args:
        program: The captured `torch.export.ExportedProgram`.
        spec: The contract.
        opset: The opset to translate to.
        artifacts: Where reports go that the options ask for.
        kept: What the program was decomposed to for other opsets.
        custom: Translations of custom operators.

    Raises:
        Failure: of stage `convert`.
    """
    model: ir.Model = translate_program(program, spec, opset, artifacts, kept, custom).model
    outputs = [item.name for item in spec.outputs]
    separate_aliased_outputs(model, _names_in_program_order(program, spec), outputs)
    unwrap_names(model)
    return model


def translate_program(
    program: Any,
    spec: ModelSpec,
    opset: int,
    artifacts: Path,
    kept: Decompositions,
    custom: CustomOps = NO_CUSTOM_OPS,
) -> Any:
    """The same with the program as it was decomposed: a `torch.onnx.ONNXProgram`."""
    options: dict[str, Any] = {"verbose": False}
    options |= {name: spec.options[name] for name in _DYNAMO_OPTIONS if name in spec.options}
    options |= WEIGHTS_AS_INPUTS["dynamo"] if spec.weights_are_inputs else {}
    with wrap_errors(Stage.CONVERT), kept.reuse(), speed_up_conversion():
        converted = torch.onnx.export(
            program,
            input_names=_names_in_program_order(program, spec),
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
    """Traces or scripts and converts by the TorchScript exporter.

    Args:
        model: The module, or what TorchScript compiled it to.
        spec: The contract.
        inputs: The declared inputs.
        opset: The opset to convert to.
        scratch: A file name to export to; it and any external data beside it are temporary.
        custom: Symbolic functions of custom operators.

    Returns:
        The graph, and what the tracer warned of or shape inference did not know.

    Raises:
        Failure: of stage `convert`.
    """
    _refuse_program(model, spec)
    _refuse_complex(spec)
    wraps = spec.capture != "script" and (needs_wrapping(spec, model) or _has_compiled_parts(model))
    if wraps and isinstance(model, torch.nn.Module):
        model = PositionalModule(model, spec)
        call = Call(args=tuple(tensor.clone() for tensor in inputs.values()), kwargs={})
        names = [item.name for item in spec.inputs]
    else:
        call = build_tensor_call(spec, inputs)
        names = _names_in_call_order(spec, model)
    scratch.parent.mkdir(parents=True, exist_ok=True)
    with (
        wrap_errors(Stage.CONVERT),
        custom.register_symbolics(opset),
        collect_tracer_warnings(Path()) as notes,
        detach_weights() as aside,
        # As PyTorch is run: what writes into a buffer is no step of training.
        torch.no_grad(),
    ):
        torch.onnx.export(
            _with_compiled_parts(model, call),
            # torch.onnx takes a last dict for keyword arguments unless an empty one follows it.
            call.args if call.kwargs else (*call.args, {}),
            str(scratch),
            kwargs=call.kwargs or None,
            input_names=names,
            output_names=[item.name for item in spec.outputs],
            opset_version=opset,
            dynamic_axes=_dynamic_axes(spec),
            dynamo=False,
            **_torchscript_options(spec),
        )
        graph = ir.load(scratch)
        restore_weights(graph, aside)
    unwrap_names(graph)
    return graph, (*notes, *write_declared_sizes(graph, spec))


def _refuse_program(model: Model, spec: ModelSpec) -> None:
    if find_program(model) is not None:
        raise Failure(
            Stage.CAPTURE,
            f"TorchScript takes modules, {spec.source} is an ExportedProgram; "
            "set exporter = 'dynamo'",
        )


def _refuse_complex(spec: ModelSpec) -> None:
    """TorchScript's exporter would fail too, with a word about some number type."""
    for side, ends in (("input", spec.inputs), ("output", spec.outputs)):
        for end in ends:
            if end.is_complex:
                message = (
                    f"TorchScript exports no complex numbers: {side} '{end.name}' is {end.dtype}; "
                    "dynamo writes them as pairs, from opset 18 up"
                )
                raise Failure(Stage.CONVERT, message)


def _with_compiled_parts(model: Model, call: Call) -> Model:
    """The model, or where it has such parts its trace by torch.jit, which keeps their control flow.

    The tracer of torch.onnx refuses them.
    """
    if not _has_compiled_parts(model):
        return model
    trace: Callable[..., Model] = torch.jit.trace  # torch gives it no types
    return trace(model, call.args, strict=False, check_trace=False)


def _has_compiled_parts(model: Model) -> bool:
    """Whether a module that is to be traced has submodules that TorchScript compiled."""
    if not isinstance(model, torch.nn.Module) or isinstance(model, torch.jit.ScriptModule):
        return False
    return any(isinstance(part, torch.jit.ScriptModule) for part in model.modules())


def _torchscript_options(spec: ModelSpec) -> dict[str, Any]:
    options: dict[str, Any] = {"training": MODES[spec.mode]}
    options |= {name: spec.options[name] for name in _TORCHSCRIPT_OPTIONS if name in spec.options}
    if spec.weights_are_inputs:
        options |= WEIGHTS_AS_INPUTS["torchscript"] | {"export_params": True}
    options["training"] = getattr(torch.onnx.TrainingMode, str(options["training"]))
    if "operator_export_type" in options:
        kind = str(options["operator_export_type"])
        options["operator_export_type"] = getattr(torch.onnx.OperatorExportTypes, kind)
    return options


def _dynamic_axes(spec: ModelSpec) -> dict[str, dict[int, str]]:
    shapes = [(item.name, item.shape) for item in spec.inputs]
    shapes += [(item.name, item.shape) for item in spec.outputs]
    return {
        name: named
        for name, shape in shapes
        if (named := {index: dim for index, dim in enumerate(shape) if isinstance(dim, str)})
    }


def _names_in_program_order(program: Any, spec: ModelSpec) -> list[str]:
    """Input names in the order of a program, which may have been captured by another call."""
    call = build_call(spec, {item.name: _Named(item.name) for item in spec.inputs}, lambda _: None)
    leaves = order_leaves(program, call.args, call.kwargs)
    if leaves is None:
        return _names_in_call_order(spec, None)
    return [leaf.name for leaf in leaves if isinstance(leaf, _Named)]


def _names_in_call_order(spec: ModelSpec, model: Model | None) -> list[str]:
    """Input names in the order in which the exporter meets the inputs.

    torch.onnx gives names by position. Dynamo flattens the call as it was made; TorchScript binds
    it to the signature of `forward` first, so that keyword arguments come in its order.
    """
    call = build_call(spec, {item.name: _Named(item.name) for item in spec.inputs}, lambda _: None)
    ordered: Any = (call.args, call.kwargs)
    if call.kwargs and isinstance(model, torch.nn.Module):
        ordered = _bound(model, call)
    return [leaf.name for leaf in pytree.tree_leaves(ordered) if isinstance(leaf, _Named)]


class _Named:
    """Stands for the tensor of an input in a call that is only looked at."""

    def __init__(self, name: str) -> None:
        self.name = name


def _bound(model: torch.nn.Module, call: Call) -> Mapping[str, Any]:
    try:
        return dict(inspect.signature(model.forward).bind(*call.args, **call.kwargs).arguments)
    except (TypeError, ValueError):  # no readable signature: the order of the call it is
        return {"args": call.args, "kwargs": call.kwargs}
