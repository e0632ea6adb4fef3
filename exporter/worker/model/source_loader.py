"""From the text of `source` to a model that is ready to run."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch.export import ExportedProgram
from torch.nn.parameter import is_lazy

from exporter.core.import_object import load_attribute, prepend_to_path
from exporter.manifest import ModelSpec
from exporter.records.record import Stage, Status
from exporter.worker.model.exported_program import convert_to_module
from exporter.worker.model.weights_file import load_weights, require_hash
from exporter.worker.process.failure import Failure, wrap_errors
from exporter.worker.process.random_seed import seed_generators

#: The models that the exporters accept.
Model: TypeAlias = "torch.nn.Module | torch.jit.ScriptFunction[Any, Any]"


def load_model(spec: ModelSpec, root: Path) -> Model:
    """Build the model under its seed and set its weights, precision, device and mode.

    Raises:
        Failure: Stage `source`, if the import or the construction fails, or if the result is no
            model. Status `unavailable`, if this machine lacks the export device.
    """
    folder = (root / spec.manifest).parent
    with wrap_errors(Stage.SOURCE):
        require_hash(spec, folder)
        device = _resolve_device(spec)
        prepend_to_path(root)
        if spec.is_saved_program:
            model: Any = torch.export.load(folder / spec.source)
        elif spec.is_saved_script:
            load: Callable[..., Any] = torch.jit.load  # torch has no types for it
            model = load(str(folder / spec.source), map_location="cpu")
        else:
            model = _build_model(spec, folder)
        if isinstance(model, ExportedProgram):
            _require_no_settings(spec)
            return convert_to_module(model)
        if not isinstance(model, torch.nn.Module | torch.jit.ScriptFunction):
            raise Failure(
                Stage.SOURCE,
                f"{spec.source} gave a {type(model).__name__}, expected a torch.nn.Module",
            )
        if spec.weights:
            load_weights(model, spec, folder)
        return _prepare_module(model, spec, device) if isinstance(model, torch.nn.Module) else model


def import_source(spec: ModelSpec, root: Path) -> None:
    """Import the source of a model under its seed, without building the model.

    Raises:
        Failure: Stage `source`, if the import fails.
    """
    with wrap_errors(Stage.SOURCE):
        prepend_to_path(root)
        seed_generators(spec.seed)  # the import builds a model that is an object of the module
        load_attribute(spec.source, (root / spec.manifest).parent)


def _resolve_device(spec: ModelSpec) -> torch.device:
    device = torch.device(spec.export_device)
    if device.type == "cpu":
        return device
    module = getattr(torch, device.type, None)
    count = module.device_count() if module is not None and module.is_available() else 0
    if (device.index or 0) >= count:
        raise Failure(
            Stage.SOURCE,
            f"export_device = '{spec.export_device}': PyTorch finds {count or 'no'} {device.type} "
            "device(s) on this machine",
            status=Status.UNAVAILABLE,
        )
    return device


def _build_model(spec: ModelSpec, folder: Path) -> Any:
    seed_generators(spec.seed)  # the import builds a model that is an object of the module
    source = load_attribute(spec.source, folder)
    seed_generators(spec.seed)
    if isinstance(source, torch.nn.Module | torch.jit.ScriptFunction | ExportedProgram):
        if spec.init:
            raise Failure(
                Stage.SOURCE,
                f"{spec.source} is a model, which accepts no init arguments; remove `init`",
            )
        return source
    if not callable(source):
        raise Failure(
            Stage.SOURCE,
            f"{spec.source} is a {type(source).__name__}, expected a class, a function or a module",
        )
    _require_init(source, spec)
    return source(**spec.init)


def _require_init(source: Callable[..., object], spec: ModelSpec) -> None:
    """Raise if `init` does not fit the parameters, as far as they can be read."""
    try:
        signature = inspect.signature(source)
    except (TypeError, ValueError):
        return  # the call reports the problem
    try:
        signature.bind(**spec.init)
    except TypeError as error:
        parameters = f"{spec.source.rpartition(':')[2]}{signature}"
        message = f"`init` does not fit {parameters}: {error}; change `init` or the parameters"
        raise Failure(Stage.SOURCE, message) from error


def _require_no_settings(spec: ModelSpec) -> None:
    """Raise if the manifest sets a property that the capture of a program has fixed."""
    settings = {
        "weights": bool(spec.weights),
        "mode": spec.mode == "train",
        "precision": spec.precision is not None,
        "export_device": spec.export_device != "cpu",
    }
    for key in (key for key, is_set in settings.items() if is_set):
        message = (
            f"{spec.source} is an ExportedProgram: its capture fixed the {key}; remove `{key}`"
        )
        raise Failure(Stage.SOURCE, message)


def _prepare_module(model: torch.nn.Module, spec: ModelSpec, device: torch.device) -> Model:
    """Set the precision, the device and the mode; compile it if `capture` is `script`."""
    weights = (*model.named_parameters(), *model.named_buffers())
    if lazy := [name for name, weight in weights if is_lazy(weight)]:
        # The first call of the model defines these sizes.
        raise Failure(
            Stage.SOURCE,
            f"{spec.source} has lazy weights, which have no sizes yet ({', '.join(lazy)}); "
            "set `source` to a function that builds the model, calls it once and returns it",
        )
    # `Module.to` would discard the imaginary part of complex weights.
    casts = {
        "float32": model.float,
        "float16": model.half,
        "bfloat16": model.bfloat16,
        "float64": model.double,
    }
    if spec.precision:
        casts[spec.precision]()
    if device.type != "cpu":
        model.to(device)
    if spec.mode == "eval":
        model.eval()
    elif spec.mode == "train":
        model.train()
    if spec.capture == "script" and not isinstance(model, torch.jit.ScriptModule):
        compiled: torch.nn.Module = torch.jit.script(model)
        return compiled
    return model
