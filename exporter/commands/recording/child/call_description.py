"""Describe the call of a model: tensors, constants, containers, and the names of a script."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import inspect
import json
import os
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from exporter.commands.recording.observation import Observation
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.files import hash_file
from exporter.core.import_object import load_attribute, search_project
from exporter.manifest.syntax.values import parse_call_path
from exporter.worker.inputs.inputs_from import FlattenedCall
from exporter.worker.process.failure import Failure

#: Elements that are read for the range of the values.
_READ = 1 << 24


def describe_call(
    names: Sequence[str], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Return the fields of the call in an `Observation`; `names` are those of `forward`."""
    call = FlattenedCall()
    while (
        args and args[-1] is None and len(args) <= len(names)
    ):  # None at the end is the default of most parameters
        args = args[:-1]
    try:
        call.add("args", (), args)
        call.add("kwargs", (), kwargs)
    except Failure as failure:
        return {"problem": str(failure).removeprefix("inputs_from: ")}
    tensors, used = [], set[str]()
    for at, tensor in call.tensors.items():
        name = name_input(at, names, used)
        used.add(name)
        tensors.append({"at": at, "name": name, **describe_tensor(tensor)})
    constants = [{"at": at, "value": value} for at, value in call.constants.items()]
    containers = [{"at": at, "type": kind} for at, kind in call.containers.items()]
    return {"tensors": tensors, "constants": constants, "containers": containers}


def store_call(
    model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], returned: Any, folder: Path
) -> dict[str, str]:
    """Write the state of a model, and the inputs and outputs of a call, in `eval` mode.

    `returned`: The result of the call; None to call a copy of the model.
    Returns: The paths in the `Observation`.
    """
    call = FlattenedCall()
    call.add("args", (), args)
    call.add("kwargs", (), kwargs)
    inputs = [tensor.detach().to("cpu", copy=True) for tensor in call.tensors.values()]
    state = read_state(model)
    if returned is None:
        model = model.module() if isinstance(model, torch.export.ExportedProgram) else model
        with suppress(Exception):  # else the model itself is called
            model = copy.deepcopy(model).eval()
        with warnings.catch_warnings(), torch.no_grad(), torch.random.fork_rng():
            warnings.simplefilter("ignore")
            torch.manual_seed(0)
            returned = model(*args, **kwargs)
    outputs = list(list_tensors(returned))
    content = {"inputs": inputs, "outputs": outputs, "threads": torch.get_num_threads()}
    return {"state": _store(state, folder), "sample": _store(content, folder)}


def read_state(model: Any) -> dict[str, torch.Tensor]:
    """Return the tensors of the state; a function has none."""
    state = model.state_dict() if isinstance(model, torch.nn.Module) else {}
    return {key: value.detach().cpu() for key, value in state.items() if hasattr(value, "detach")}


def list_tensors(value: Any, *, copies: bool = True) -> Iterator[torch.Tensor]:
    """Yield the tensors in a result, in its order; by default, copies of them."""
    match value:
        case torch.Tensor():
            yield value.detach().to("cpu", copy=True) if copies else value
        case Mapping():
            yield from list_tensors(list(value.values()), copies=copies)
        case tuple() | list():
            for each in value:
                yield from list_tensors(each, copies=copies)
        case _ if dataclasses.is_dataclass(value):
            fields = [getattr(value, each.name) for each in dataclasses.fields(value)]
            yield from list_tensors(fields, copies=copies)


def _store(content: object, folder: Path) -> str:
    """Write tensors to a file whose name is its hash, with a suffix of weights; return its path."""
    part = folder / f"{os.getpid()}-{threading.get_ident()}.part"
    with part.open("wb") as file:
        torch.save(content, file)
    return str(part.replace(folder / f"{hash_file(part)}.pt"))


def list_parameters(model: Any) -> list[str]:
    """Return the names of the parameters of `forward`; `*args` has a star."""
    if schema := getattr(getattr(model, "forward", None), "schema", None):  # TorchScript has one
        return [each.name for each in schema.arguments if each.name != "self"]
    try:
        parameters = inspect.signature(model.forward).parameters.values()
    except (TypeError, ValueError, AttributeError):
        return []
    return [f"*{p.name}" if p.kind is p.VAR_POSITIONAL else p.name for p in parameters]


def name_input(at: str, names: Sequence[str], used: set[str]) -> str:
    """Return a name from the path: the parameter of `forward`, and the keys in it."""
    root, (first, *steps) = parse_call_path(at)
    name = str(first)
    if root == "args":
        index = int(first)
        name = names[index] if index < len(names) else f"input_{index}"
        if names and (index >= len(names) or name.startswith("*")) and names[-1][:1] == "*":
            name = f"{names[-1][1:]}_{index - len(names) + 1}"
    name = "_".join((name, *map(str, steps)))
    return name if name not in used else f"{name}_{len(used)}"


def describe_tensor(tensor: torch.Tensor) -> dict[str, Any]:
    """Return dtype, shape and the range of the finite values."""
    description: dict[str, Any] = {
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": list(tensor.shape),
    }
    if 0 < tensor.numel() <= _READ and not tensor.is_complex():
        values = tensor.detach().to("cpu", torch.float64)
        finite = values[torch.isfinite(values)]
        if finite.numel():
            description |= {"low": float(finite.min()), "high": float(finite.max())}
    return description


def add_declarations(content: dict[str, Any], model: Any, bound: Mapping[str, Any]) -> None:
    """Add the names and the dynamic dimensions that a script passes to `torch.onnx.export`."""
    tensors = content.get("tensors", [])
    output_names = list(bound.get("output_names") or ())
    axes = dict(bound.get("dynamic_axes") or {})
    shapes = bound.get("dynamic_shapes")
    unused = set(shapes) if isinstance(shapes, Mapping) else set[str]()
    parameters = list_parameters(model)
    names = list(bound.get("input_names") or ())
    for index, tensor in enumerate(tensors):
        parameter = tensor["name"]
        if shapes is not None:
            tensor["dynamic"] = _read_dims(_find_shape(shapes, tensor["at"], parameters))
        if index < len(names):
            tensor["name"] = names[index]
        unused -= {parameter, tensor["name"], _find_key(tensor["at"], parameters)}
        if isinstance(shapes, Mapping) and not tensor["dynamic"]:
            # torch itself takes a name of `input_names` for that of a parameter.
            tensor["dynamic"] = _read_dims(shapes.get(tensor["name"]))
        for name in (tensor["name"], parameter):
            if name in axes:
                tensor["dynamic"] = _read_dims(axes.pop(name), len(tensor["shape"]))
                break
    content["outputs"] = [
        {"name": name, "dynamic": _read_dims(axes.pop(name, None))} for name in output_names
    ]
    known = ", ".join([*(each["name"] for each in tensors), *output_names])
    content["notes"] = [
        f"{argument} of the script has the key {key}, which is no input or output: {known}"
        for argument, keys in (("dynamic_axes", axes), ("dynamic_shapes", unused))
        for key in sorted(map(str, keys))
    ]


def _find_key(at: str, parameters: Sequence[str]) -> str:
    """Return the parameter of `forward` that gets a tensor."""
    root, (first, *_) = parse_call_path(at)
    if root != "args":
        return str(first)
    index = min(int(first), len(parameters) - 1)
    return parameters[index].removeprefix("*") if parameters else ""


def _find_shape(shapes: Any, at: str, parameters: Sequence[str]) -> Any:
    """Return the part of `dynamic_shapes` for a tensor, or None."""
    root, steps = parse_call_path(at)
    first, *inner = steps
    if isinstance(shapes, Mapping):
        name = parameters[int(first)] if root == "args" and int(first) < len(parameters) else first
        key = str(name).removeprefix("*")
        part = shapes.get(key)
        if str(name).startswith("*") and isinstance(part, tuple | list):
            inner = [int(first) - len(parameters) + 1, *inner]
    else:
        index = first if root == "args" else list(parameters).index(str(first))
        part = shapes[int(index)] if int(index) < len(shapes) else None
    for step in inner:
        if isinstance(part, Mapping):
            part = part.get(step)
        elif isinstance(part, tuple | list) and isinstance(step, int) and step < len(part):
            part = part[step]
        else:
            return None
    return part


def _read_dims(declared: Any, rank: int = 0) -> dict[int, dict[str, Any]]:
    """Return the dynamic dimensions of one tensor, from any notation of torch."""
    if isinstance(declared, Mapping):
        items = dict(declared)
    elif isinstance(declared, tuple | list):
        is_axes = all(isinstance(each, int) for each in declared) and rank
        items = dict.fromkeys(declared, "") if is_axes else dict(enumerate(declared))
    else:
        return {}
    dims: dict[int, dict[str, Any]] = {}
    for index, value in items.items():
        position = index + rank if index < 0 else index
        if isinstance(value, str):
            dims[position] = {"name": value}
        elif hasattr(value, "min") and hasattr(value, "__name__"):
            dims[position] = {"name": value.__name__}
            for key in ("min", "max"):
                limit = getattr(value, key)
                # torch has limits of its own for dimensions without a range.
                if isinstance(limit, int) and 1 < limit < 1 << 31:
                    dims[position][key] = limit
        elif value is not None and not isinstance(value, int) and "STATIC" not in str(value):
            dims[position] = {"name": ""}
    return dims


def describe_function(function: str, folder: str, names: list[str]) -> Observation:
    """Return the call that a function returns: tensors, `args`, or `(args, kwargs)`."""
    search_project(Path(folder))
    returned = load_attribute(function, Path(folder))()
    match returned:
        case (tuple() | list() as args, dict() as kwargs):
            args = tuple(args)
        case dict() as kwargs:
            args = ()
        case _:
            args = tuple(returned) if isinstance(returned, tuple | list) else (returned,)
            kwargs = {}
    return Observation.model_validate_json(json.dumps(describe_call(names, args, kwargs)))


def describe_transformers(name: str, config: str) -> Observation:
    """Return the usual call of a class with a configuration; see `describe_usual_call`."""
    cls = getattr(importlib.import_module("transformers"), name)
    if cls.can_generate():
        return Observation(generates=True, class_file=str(inspect.getsourcefile(cls)))
    return describe_usual_call(cls, cls.config_class.from_json_file(config))


def describe_usual_call(cls: type, settings: Any) -> Observation:
    """Return a call of a model of transformers, by its usual inputs.

    Raises:
        ExporterError: MANIFEST if the model has other inputs.
    """
    name, names = cls.__name__, list_parameters(cls)[1:]
    kwargs: dict[str, Any] = {}
    if "input_ids" in names:
        kwargs["input_ids"] = torch.randint(0, settings.get_text_config().vocab_size, (2, 8))
        if "attention_mask" in names:
            kwargs["attention_mask"] = torch.ones(2, 8, dtype=torch.long)
        if "decoder_input_ids" in names:
            kwargs["decoder_input_ids"] = torch.randint(0, settings.vocab_size, (2, 5))
        if "use_cache" in names:
            kwargs["use_cache"] = False
    if "pixel_values" in names:
        picture = getattr(settings, "vision_config", settings)
        size = getattr(picture, "image_size", 224)
        height, width = size if isinstance(size, list | tuple) else (size, size)
        kwargs["pixel_values"] = torch.randn(2, picture.num_channels, height, width)
    if not kwargs:
        message = f"{name}: has neither input_ids nor pixel_values; pass --input for {names}"
        raise ExporterError(ExitCode.MANIFEST, message)
    call = describe_call(names, (), kwargs)
    call["class_name"], call["class_file"] = name, str(inspect.getsourcefile(cls))
    return Observation.model_validate_json(json.dumps(call))
