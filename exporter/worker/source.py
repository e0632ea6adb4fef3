"""From the text of `source` to a model that is ready to run.

In: a `ModelSpec` and the project's root. Out: a module, or a function compiled by TorchScript.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import torch

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
        _search_first(root)
        found = load_attribute(spec.source, (root / spec.manifest).parent)
        torch.manual_seed(spec.seed)
        model = _build(found, spec)
        if not isinstance(model, torch.nn.Module | torch.jit.ScriptFunction):
            raise Failure(
                Stage.SOURCE,
                f"{spec.source} gave a {type(model).__name__}, expected a torch.nn.Module",
            )
        return _in_mode(model, spec)


def load_attribute(source: str, folder: Path) -> Any:
    """The object that `file.py:attr` (relative to `folder`) or `package.module:attr` names."""
    where, _, attribute = source.rpartition(":")
    # Model files import their neighbours by the folder of the manifest: `models.layers`.
    _search_first(folder)
    found: Any
    if where.endswith(".py"):
        found = _import_file((folder / where).resolve(), where)
    else:
        found = importlib.import_module(where)
    for name in attribute.split("."):
        found = getattr(found, name)
    return found


def _search_first(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _import_file(path: Path, relative: str) -> ModuleType:
    parts = Path(relative).with_suffix("").parts
    if all(part.isidentifier() for part in parts):
        module = importlib.import_module(".".join(parts))
        if getattr(module, "__file__", None) and Path(str(module.__file__)).resolve() == path:
            return module
    # A name that cannot be imported, or that belongs to another package: load the file itself.
    name = "exporter_source_" + "_".join(parts)
    specification = importlib.util.spec_from_file_location(name, path)
    if specification is None or specification.loader is None:
        raise ImportError(f"{relative} cannot be imported")
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    specification.loader.exec_module(module)
    return module


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


def _in_mode(model: Model, spec: ModelSpec) -> Model:
    if isinstance(model, torch.nn.Module):
        if spec.mode == "eval":
            model.eval()
        elif spec.mode == "train":
            model.train()
        if spec.capture == "script" and not isinstance(model, torch.jit.ScriptModule):
            return torch.jit.script(model)
    return model
