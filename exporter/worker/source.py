"""From the text of `source` to a model that is ready to run.

In: a `ModelSpec` and the project's root. Out: a module, or a function compiled by TorchScript.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

import torch

from exporter.attributes import load_attribute, search_first
from exporter.manifest import ModelSpec
from exporter.record import Stage
from exporter.worker.failure import Failure, stage_of

#: What the exporters take.
Model: TypeAlias = "torch.nn.Module | torch.jit.ScriptFunction[Any, Any]"


def load_model(spec: ModelSpec, root: Path) -> Model:
    """Builds the model under its seed and puts it into its mode.

    Raises:
        Failure: of stage `source`, where importing or building it fails or gives no model.
    """
    with stage_of(Stage.SOURCE):
        search_first(root)
        found = load_attribute(spec.source, (root / spec.manifest).parent)
        torch.manual_seed(spec.seed)
        model = _build(found, spec)
        if not isinstance(model, torch.nn.Module | torch.jit.ScriptFunction):
            raise Failure(
                Stage.SOURCE,
                f"{spec.source} gave a {type(model).__name__}, expected a torch.nn.Module",
            )
        return _in_mode(_in_precision(model, spec), spec)


def _build(found: Any, spec: ModelSpec) -> Any:
    is_model = isinstance(found, torch.nn.Module | torch.jit.ScriptFunction)
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
