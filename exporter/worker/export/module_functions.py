"""The types of modules that TorchScript's exporter keeps as functions in the file."""

from __future__ import annotations

import torch

from exporter.core.import_object import load_attribute
from exporter.core.text import join_names
from exporter.manifest import ModelSpec
from exporter.manifest.rules.references import FUNCTIONS
from exporter.records.record import Stage
from exporter.worker.export.export_context import ExportContext
from exporter.worker.process.failure import Failure, wrap_errors

_KEY = f"options.{FUNCTIONS}"


def resolve_function_types(context: ExportContext) -> ModelSpec:
    """Return the contract with a set of types in place of the references to them.

    Only the call of `torch.onnx.export` reads this contract, because no file can contain a type.

    Raises:
        Failure: At stage `convert`, if a reference is no type of a module of this model.
    """
    references = context.spec.options.get(FUNCTIONS)
    if not isinstance(references, list) or not isinstance(context.model, torch.nn.Module):
        return context.spec
    folder = (context.root / context.spec.manifest).parent
    available = {type(module) for module in context.model.modules()}
    types: set[type] = set()
    for reference in references:
        with wrap_errors(Stage.CONVERT):
            kind = load_attribute(str(reference), folder)
        if not isinstance(kind, type):
            problem = f"{reference} is a {type(kind).__name__}, expected a class"
            raise Failure(Stage.CONVERT, f"{_KEY}: {problem}")
        if kind not in available:
            names = join_names(sorted(each.__name__ for each in available))
            message = f"{_KEY}: the model has no module of the type {reference}; it has {names}"
            raise Failure(Stage.CONVERT, message)
        types.add(kind)
    options = {**context.spec.options, FUNCTIONS: types}
    return context.spec.model_copy(update={"options": options})
