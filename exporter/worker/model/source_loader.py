"""From the text of `source` to a model that is ready to run.

In: a `ModelSpec` and the project's root. Out: a module, or a function compiled by TorchScript, with
its weights, in its mode, on its device. A captured program is the module that it runs as.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch.export import ExportedProgram
from torch.nn.parameter import is_lazy

from exporter.core.import_object import load_attribute, prepend_to_path
from exporter.manifest import ModelSpec
from exporter.records.record import Stage
from exporter.worker.model.device import resolve_export_device
from exporter.worker.model.exported_program import convert_to_module
from exporter.worker.model.weights_file import load_weights, require_hash
from exporter.worker.process.failure import Failure, wrap_errors

#: What the exporters take.
Model: TypeAlias = "torch.nn.Module | torch.jit.ScriptFunction[Any, Any]"


def load_model(spec: ModelSpec, root: Path) -> Model:
    """Builds the model under its seed and puts it into its mode.

    Raises:
        Failure: of stage `source`, where importing or building it fails or gives no model.
    """
    folder = (root / spec.manifest).parent
    with wrap_errors(Stage.SOURCE):
        require_hash(spec, folder)
        device = resolve_export_device(spec)
        prepend_to_path(root)
        model = _from_file(spec, folder)
        if model is None:
            model = _from_code(spec, folder)
        if isinstance(model, ExportedProgram):
            return _captured(model, spec)
        if not isinstance(model, torch.nn.Module | torch.jit.ScriptFunction):
            raise Failure(
                Stage.SOURCE,
                f"{spec.source} gave a {type(model).__name__}, expected a torch.nn.Module",
            )
        if spec.weights:
            load_weights(model, spec, folder)
        _require_sizes(model, spec)
        model = _in_precision(model, spec)
        if isinstance(model, torch.nn.Module) and device.type != "cpu":
            model.to(device)
        return _in_mode(model, spec)


def _from_file(spec: ModelSpec, folder: Path) -> Any:
    """A saved model; None where the source is code."""
    if spec.is_saved_program:
        return torch.export.load(folder / spec.source)
    if spec.is_saved_script:
        load: Callable[..., Any] = torch.jit.load  # torch gives it no types
        return load(str(folder / spec.source), map_location="cpu")
    return None


def _from_code(spec: ModelSpec, folder: Path) -> Any:
    torch.manual_seed(spec.seed)  # a model object is built by the import
    found = load_attribute(spec.source, folder)
    torch.manual_seed(spec.seed)
    return _build(found, spec)


def _captured(program: ExportedProgram, spec: ModelSpec) -> Model:
    """A program has its weights, its mode and its device since it was captured."""
    said = {"weights": spec.weights, "mode": spec.mode == "train", "precision": spec.precision}
    said["export_device"] = spec.export_device != "cpu"
    for key in (key for key, is_said in said.items() if is_said):
        message = f"{spec.source} is an ExportedProgram: its {key} is what it was captured with"
        raise Failure(Stage.SOURCE, message)
    return convert_to_module(program)


def _build(found: Any, spec: ModelSpec) -> Any:
    is_model = isinstance(found, torch.nn.Module | torch.jit.ScriptFunction | ExportedProgram)
    if is_model and not isinstance(found, type):
        if spec.init:
            raise Failure(
                Stage.SOURCE, f"{spec.source} is a model already: it takes no init arguments"
            )
        return found
    if not callable(found):
        raise Failure(
            Stage.SOURCE,
            f"{spec.source} is a {type(found).__name__}, expected a class, a function or a module",
        )
    return found(**spec.init)


def _require_sizes(model: Model, spec: ModelSpec) -> None:
    """Weights of lazy modules get their sizes from the first call, which is the model's affair."""
    if not isinstance(model, torch.nn.Module):
        return
    weights = (*model.named_parameters(), *model.named_buffers())
    if lazy := [name for name, weight in weights if is_lazy(weight)]:
        message = (
            f"{spec.source} has lazy modules whose weights have no sizes yet ({', '.join(lazy)}): "
            "let source name a function that builds the model, calls it once and returns it"
        )
        raise Failure(Stage.SOURCE, message)


def _in_precision(model: Model, spec: ModelSpec) -> Model:
    """Casts floating weights; `Module.to` would take the imaginary part of complex ones."""
    if not isinstance(model, torch.nn.Module):
        return model
    match spec.precision:
        case "float32":
            return model.float()
        case "float16":
            return model.half()
        case "bfloat16":
            return model.bfloat16()
        case "float64":
            return model.double()
        case None:
            return model


def _in_mode(model: Model, spec: ModelSpec) -> Model:
    if isinstance(model, torch.nn.Module):
        if spec.mode == "eval":
            model.eval()
        elif spec.mode == "train":
            model.train()
        if spec.capture == "script" and not isinstance(model, torch.jit.ScriptModule):
            return torch.jit.script(model)
    return model
