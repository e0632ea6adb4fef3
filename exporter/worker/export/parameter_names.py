"""The manifest's names for the weights of a model."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

import onnx_ir as ir
import torch

from exporter.core.text import join_names
from exporter.jobs import NamedWeight
from exporter.manifest import ModelSpec, ParameterNames
from exporter.manifest.resolved.model import NUMBER_PLACEHOLDER
from exporter.records.record import Stage
from exporter.worker.model.source_loader import Model
from exporter.worker.process.failure import Failure


def resolve_weight_names(model: Model, spec: ModelSpec) -> dict[str, str]:
    """Return the name in the file for each weight, by its name in the model.

    Weights that share one tensor get the name of the first one.

    Raises:
        Failure: At stage `source`, if the manifest's names do not match the weights.
    """
    parameters = spec.parameters
    if parameters is None:
        return {}
    weights = _list_weights(model, with_buffers=bool(parameters.patterns))
    if not weights:
        raise Failure(Stage.SOURCE, f"parameters: {spec.source} has no weights; remove the key")
    first: dict[int, str] = {}
    for name, tensor in weights.items():
        first.setdefault(id(tensor), name)
    names = _assign_names(parameters, tuple(first.values()))
    signature = {item.name for item in (*spec.inputs, *spec.outputs)}
    counts = Counter(names.values())
    # The second name of a shared weight is free, because the file has one copy.
    unnamed = {
        name
        for name, tensor in _list_weights(model, with_buffers=True).items()
        if first.get(id(tensor)) not in names
    }
    for weight, name in names.items():
        if name in signature:
            message = f"parameters: '{name}' for {weight} is also an input or output; rename one"
            raise Failure(Stage.SOURCE, message)
        if name in unnamed:
            message = f"parameters: '{name}' for {weight} is the name of another weight; name both"
            raise Failure(Stage.SOURCE, message)
        if counts[name] > 1:
            message = f"parameters: {counts[name]} weights have the name '{name}'; rename them"
            raise Failure(Stage.SOURCE, message)
    return {
        name: names[first[id(tensor)]]
        for name, tensor in weights.items()
        if first[id(tensor)] in names
    }


def rename_weights(model: ir.Model, names: Mapping[str, str]) -> None:
    """Rename the weights of a graph, and any other value with one of the new names."""
    # With `export_params = false`, inputs replace the initializers.
    values = dict(model.graph.initializers.items())
    values |= {str(value.name): value for value in model.graph.inputs}
    weights = {name: value for name, value in values.items() if name in names}
    new_names = {names[name] for name in weights}
    for node in model.graph.all_nodes():
        for output in node.outputs:
            if output.name in new_names:
                output.name = f"{output.name}_value"
    renamed: set[str] = set()
    # Temporary names first, because two weights may exchange their names.
    for number, value in enumerate(weights.values()):
        value.name = f"_exporter_weight_{number}"
    for name, value in weights.items():
        # The second copy of a shared weight keeps its own name.
        value.name = names[name] if names[name] not in renamed else name
        renamed.add(names[name])


def describe_named_weights(
    model: Model, names: Mapping[str, str], storages: Container[int]
) -> tuple[NamedWeight, ...]:
    """Return the properties of each weight that the file has to name.

    Args:
        model: The model with the weights.
        names: The name in the file, by the name in the model.
        storages: The addresses of the storages that a run of the model reads.
    """
    weights = _list_weights(model, with_buffers=True)
    described: dict[str, NamedWeight] = {}
    for source, name in names.items():
        if name not in described:
            tensor = weights[source].detach().cpu().contiguous()
            data = b""  # the values in the order of a file, row by row
            if tensor.numel():
                data = tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
            described[name] = NamedWeight(
                name=name,
                source=source,
                dtype=str(tensor.dtype).removeprefix("torch."),
                shape=tuple(tensor.shape),
                sha256=hashlib.sha256(data).hexdigest(),
                is_read=weights[source].untyped_storage().data_ptr() in storages,
            )
    return tuple(described.values())


def _list_weights(model: Model, *, with_buffers: bool) -> dict[str, torch.Tensor]:
    """Return parameters in their order, then saved buffers; shared ones under every name."""
    if not isinstance(model, torch.nn.Module):
        return {}
    weights: dict[str, torch.Tensor] = dict(model.named_parameters(remove_duplicate=False))
    if with_buffers:
        state = model.state_dict(keep_vars=True)
        weights |= {
            name: tensor for name, tensor in state.items() if isinstance(tensor, torch.Tensor)
        }
    return weights


def _assign_names(parameters: ParameterNames, weights: Sequence[str]) -> dict[str, str]:
    if parameters.template:
        template = parameters.template
        return {name: _fill_number(template, index) for index, name in enumerate(weights)}
    if parameters.names:
        if len(parameters.names) > len(weights):
            raise Failure(
                Stage.SOURCE,
                f"parameters: {len(parameters.names)} names for {len(weights)} weights: "
                f"{join_names(weights)}; remove the last {len(parameters.names) - len(weights)}",
            )
        return dict(zip(weights, parameters.names, strict=False))
    return dict(_match_patterns(parameters.patterns, weights))


def _match_patterns(
    patterns: Mapping[str, str], weights: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield each weight with the name of the first pattern that matches it."""
    remaining = list(weights)
    for pattern, name in patterns.items():
        matches = [weight for weight in remaining if fnmatchcase(weight, pattern)]
        if not matches:
            raise Failure(
                Stage.SOURCE,
                f"parameters: '{pattern}' matches none of the remaining weights: "
                f"{join_names(remaining)}",
            )
        if NUMBER_PLACEHOLDER not in name and len(matches) > 1:
            raise Failure(
                Stage.SOURCE,
                f"parameters: '{pattern}' matches {len(matches)} weights, but '{name}' is one "
                f"name; write '{name}_{NUMBER_PLACEHOLDER}'",
            )
        for index, weight in enumerate(matches):
            yield weight, _fill_number(name, index)
            remaining.remove(weight)


def _fill_number(name: str, number: int) -> str:
    return name.replace(NUMBER_PLACEHOLDER, str(number))
