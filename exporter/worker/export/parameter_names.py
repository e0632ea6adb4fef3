"""The manifest's names for the weights of a model, on the exporter's graph.

In: a model and its contract. Out: which name each weight gets, the graph renamed in place, and what
the check needs to tell one weight from another.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

import onnx_ir as ir
import torch

from exporter.core.text_format import join_names
from exporter.jobs.reference import NamedWeight
from exporter.manifest import ModelSpec, ParameterNames
from exporter.manifest.schema.parameters import NUMBER_PLACEHOLDER
from exporter.records.record import Stage
from exporter.worker.model.source_loader import Model
from exporter.worker.process.failure import Failure


def resolve_weight_names(model: Model, spec: ModelSpec) -> dict[str, str]:
    """The name that the file gives to each weight, by its name in the model.

    Weights that share one tensor share one name, that of the first.

    Raises:
        Failure: of stage `source`, where the manifest's names do not fit the model's weights.
    """
    asked = spec.parameters
    if asked is None:
        return {}
    weights = _weights(model, with_buffers=bool(asked.patterns))
    if not weights:
        raise Failure(Stage.SOURCE, f"parameters: {spec.source} has no weights to name")
    first: dict[int, str] = {}
    for name, tensor in weights.items():
        first.setdefault(id(tensor), name)
    names = _named(asked, tuple(first.values()))
    _refuse_clashes(names, spec)
    return {
        name: names[first[id(tensor)]]
        for name, tensor in weights.items()
        if first[id(tensor)] in names
    }


def rename_weights(model: ir.Model, names: Mapping[str, str]) -> None:
    """Gives the weights of a graph their names; whatever else has one of these loses it."""
    found = {name: value for name, value in _stored(model) if name in names}
    wanted = {names[name] for name in found}
    for node in model.graph.all_nodes():
        for output in node.outputs:
            if output.name in wanted:
                output.name = f"{output.name}_value"
    renamed: set[str] = set()
    # By way of names that nothing has: two weights may swap theirs.
    for number, value in enumerate(found.values()):
        value.name = f"_exporter_weight_{number}"
    for name, value in found.items():
        # Stored twice, a shared weight keeps its own name the second time.
        value.name = names[name] if names[name] not in renamed else name
        renamed.add(names[name])


def describe_named_weights(
    model: Model, names: Mapping[str, str], read: Container[int]
) -> tuple[NamedWeight, ...]:
    """What is known of each weight that the file has to name.

    Args:
        model: Whose weights they are.
        names: The name that the file gives to each, by its own.
        read: The addresses of the storages that a run of the model reads.
    """
    weights = _weights(model, with_buffers=True)
    found: dict[str, NamedWeight] = {}
    for source, name in names.items():
        if name not in found:
            tensor = weights[source].detach().cpu().contiguous()
            found[name] = NamedWeight(
                name=name,
                source=source,
                dtype=str(tensor.dtype).removeprefix("torch."),
                shape=tuple(tensor.shape),
                sha256=hashlib.sha256(_content(tensor)).hexdigest(),
                is_read=weights[source].untyped_storage().data_ptr() in read,
            )
    return tuple(found.values())


def _content(tensor: torch.Tensor) -> bytes:
    """The values as a file holds them, row by row."""
    return tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def _weights(model: Model, *, with_buffers: bool) -> dict[str, torch.Tensor]:
    """Parameters in their order, then buffers that are saved, shared ones under every name."""
    if not isinstance(model, torch.nn.Module):
        return {}
    found: dict[str, torch.Tensor] = dict(model.named_parameters(remove_duplicate=False))
    if with_buffers:
        saved = model.state_dict(keep_vars=True)
        found |= {
            name: tensor for name, tensor in saved.items() if isinstance(tensor, torch.Tensor)
        }
    return found


def _named(asked: ParameterNames, weights: Sequence[str]) -> dict[str, str]:
    if asked.template:
        return {name: _filled(asked.template, index) for index, name in enumerate(weights)}
    if asked.names:
        if len(asked.names) != len(weights):
            raise Failure(
                Stage.SOURCE,
                f"parameters: {len(asked.names)} names for {len(weights)} weights: "
                f"{join_names(weights)}",
            )
        return dict(zip(weights, asked.names, strict=True))
    return dict(_by_pattern(asked.patterns, weights))


def _by_pattern(patterns: Mapping[str, str], weights: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The first pattern that fits a weight names it."""
    left = list(weights)
    for pattern, name in patterns.items():
        meant = [weight for weight in left if fnmatchcase(weight, pattern)]
        if not meant:
            raise Failure(
                Stage.SOURCE,
                f"parameters: '{pattern}' is none of the weights left to name: {join_names(left)}",
            )
        if NUMBER_PLACEHOLDER not in name and len(meant) > 1:
            raise Failure(
                Stage.SOURCE,
                f"parameters: '{pattern}' means {len(meant)} weights, and '{name}' is one name: "
                f"write '{name}_{NUMBER_PLACEHOLDER}'",
            )
        for index, weight in enumerate(meant):
            yield weight, _filled(name, index)
            left.remove(weight)


def _filled(name: str, number: int) -> str:
    return name.replace(NUMBER_PLACEHOLDER, str(number))


def _refuse_clashes(names: Mapping[str, str], spec: ModelSpec) -> None:
    signature = {item.name for item in spec.inputs} | {item.name for item in spec.outputs}
    counts = Counter(names.values())
    for weight, name in names.items():
        if name in signature:
            problem = f"'{name}' would be {weight} and is an input or output"
        elif counts[name] > 1:
            problem = f"{counts[name]} weights would be called '{name}'"
        else:
            continue
        raise Failure(Stage.SOURCE, f"parameters: {problem}")


def _stored(model: ir.Model) -> Iterator[tuple[str, ir.Value]]:
    """Every initializer, and with `export_params = false` the inputs in their place."""
    yield from list(model.graph.initializers.items())
    for value in model.graph.inputs:
        yield str(value.name), value
