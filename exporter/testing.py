"""`prove` exports a module in a test, with the checks of `exporter export`."""

from __future__ import annotations

import atexit
import copy
import inspect
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from exporter.cli.output.line_progress import QuietProgress
from exporter.cli.output.tables import describe_failures
from exporter.core.errors import ExporterError
from exporter.core.files import PROJECT_LIMIT, read_regular_file
from exporter.core.git import find_git_folder
from exporter.core.text import join_names
from exporter.export_options import ExportOptions
from exporter.jobs import Reference
from exporter.manifest import Manifest
from exporter.manifest.syntax.values import format_toml_value
from exporter.pipeline.build_folder import BuildFolder
from exporter.planning import Selection
from exporter.processes import ProcessStarter
from exporter.processes.fork_server_client import make_starter
from exporter.program import export
from exporter.records.record import TRACER_PREFIX, UNPROVED_PREFIX, CellId, Status
from exporter.store.project_store import GIT_STORE
from exporter.worker.model.call_objects import register_output_classes
from exporter.worker.model.source_loader import prepare_module
from exporter.worker.process.setup import use_seed
from exporter.worker.reference.noise import is_rounding, run_again
from exporter.worker.torch_private.internals import tree_leaves

#: Sizes with which an axis is found in the outputs.
_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53)

_LOADER = """import importlib.util
import sys
from pathlib import Path

import torch

sys.path += [name for name in {path!r} if name not in sys.path]
for name, file in {modules!r}.items():
    try:
        is_known = importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        is_known = False
    if not is_known:
        spec = importlib.util.spec_from_file_location(name, file)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])


def load():
    return torch.load(Path(__file__).with_name("module.pt"), weights_only=False)
"""


def prove(
    module: torch.nn.Module,
    inputs: Mapping[str, torch.Tensor] | Sequence[torch.Tensor],
    *,
    axes: Mapping[str, Mapping[int, Any]] | None = None,
    opsets: int | str | Sequence[int] = 18,
    outputs: Mapping[str, Sequence[int | str]] | None = None,
    **entry: Any,
) -> None:
    """Export the module and prove the file; all checks are those of `exporter export`.

    Args:
        module: A module whose class is at the top of a Python file.
        inputs: Example tensors by the names of parameters, or in their order.
        axes: Dynamic dimensions by input: `{"x": {0: "batch"}}`, also as `torch.export.Dim` with
            `min` and `max`.
        opsets: An opset, a list, or a range such as "17..20".
        outputs: The shapes of the outputs by name. Without it: `output`, or `output_0` and so on,
            with the dimensions that two calls of the module show.
        entry: More keys of a manifest entry, such as `tolerance` or `devices`.

    Raises:
        AssertionError: A cell is not proved, or the module computes other values in this process,
            such as after a change of its class; the text has the findings.
        ValueError: The module or the inputs cannot be described by an entry.
    """
    folder = Path(tempfile.mkdtemp(prefix="exporter-prove-"))
    try:
        table = _describe(module, inputs, axes or {}, outputs, folder / "manifests")
        cases = [*table.pop("cases"), *entry.pop("cases", ())]
        table |= {"opsets": opsets if isinstance(opsets, int | str) else list(opsets), **entry}
        if cases:
            table |= {"cases": cases}
        lines = [f"{key} = {format_toml_value(value)}" for key, value in table.items()]
        text = "\n".join(("format = 1", "[models.module]", 'source = "module.py:load"', *lines))
        git = find_git_folder(Path())
        store = format_toml_value(str(git / GIT_STORE) if git else "off")
        settings = f"[tool.exporter]\nstore = {store}\n"
        (folder / "pyproject.toml").write_text(settings, encoding="utf-8")
        (folder / "manifests/module.toml").write_text(f"{text}\n", encoding="utf-8")
        options = ExportOptions(selection=Selection(), keeps_starter=True, build=folder / "build")
        starter = _get_starter()
        starter.prepare()
        try:
            result = export(folder, options, QuietProgress(), starter, os.environ)
        except ExporterError as error:
            raise ValueError(f"prove: {error}") from error
        records = result.results.run.records
        red = [each for each in records if each.status.is_red]
        reasons = [f"{cell}: no result: {text}" for cell, text in result.results.missing.items()]
        others = [each for each in records if each.status is not Status.PASS and each not in red]
        reasons += [f"{each.cell}: {each.status}: {each.message}" for each in others]
        if not red and not reasons:
            reasons = _find_other_values(module, result.manifest, records[0].cell)
        if red or reasons:
            failures = describe_failures(result.manifest, red) if red else ""
            raise AssertionError("\n".join(filter(None, (failures, *reasons))))
        for note in dict.fromkeys(note for each in records for note in each.notes):
            if note.startswith((TRACER_PREFIX, UNPROVED_PREFIX)):
                warnings.warn(f"prove: {note}", stacklevel=2)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _find_other_values(module: torch.nn.Module, manifest: Manifest, cell: CellId) -> list[str]:
    """Return a message if the module computes other values here than its copy in the worker."""
    job = BuildFolder.from_project(manifest.project).model_folder(cell.model)
    reference = Reference.read(read_regular_file(job.reference, PROJECT_LIMIT))
    spec = manifest.find_model(cell.model).resolve_cell(cell.opset, cell.device)
    model = prepare_module(copy.deepcopy(module), spec, torch.device(spec.export_device))
    others = [
        sample.name
        for sample, outputs, again in run_again(model, spec, job, reference.promised_samples)
        if again is None or not is_rounding(again, outputs)
    ]
    problem = "the module computes other values in this process than in a new one"
    fix = "change neither classes nor globals after their import; store the change in the module"
    text = f"prove: {problem}, which imports its classes: {join_names(others)}; {fix}"
    return [text] if others else []


@cache
def _get_starter() -> ProcessStarter:
    """Return the fork server of all calls of this process."""
    starter = make_starter(os.environ)
    atexit.register(starter.close)
    return starter


def _describe(
    module: torch.nn.Module,
    inputs: Mapping[str, torch.Tensor] | Sequence[torch.Tensor],
    axes: Mapping[str, Mapping[int, Any]],
    outputs: Mapping[str, Sequence[int | str]] | None,
    folder: Path,
) -> dict[str, Any]:
    """Write the module and its inputs, and return the entry without its source."""
    folder.mkdir()
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    signature = inspect.signature(module.forward).parameters
    parameters = [name for name, each in signature.items() if each.kind in named]
    if not isinstance(inputs, Mapping):
        if len(inputs) > len(parameters):
            count = f"{len(inputs)} inputs for the {len(parameters)} named parameters of forward"
            raise ValueError(f"prove: {count}; remove some, or write an entry for `*args`")
        inputs = dict(zip(parameters, inputs, strict=False))
    if unknown := [name for name in (*inputs, *axes) if name not in parameters]:
        known = ", ".join(parameters)
        raise ValueError(f"prove: forward has no parameter '{unknown[0]}'; name one of {known}")
    checked: Mapping[str, object] = inputs  # callers without types
    if others := [name for name, each in checked.items() if not isinstance(each, torch.Tensor)]:
        raise ValueError(
            f"prove: input '{others[0]}' is no tensor; write an entry for other values"
        )
    dims = {_name(dim): dim for each in axes.values() for dim in each.values()}
    limits = {name: _read_limits(dim) for name, dim in dims.items()}
    names = {name: {i: _name(dim) for i, dim in axes.get(name, {}).items()} for name in inputs}
    first, second = _choose_sizes(limits)
    values = _resize(inputs, names, first)
    is_normal = _accepts_normal(module, values)
    items, case = [], dict[str, Any](name="given", values={})
    for position, (name, tensor) in enumerate(values.items()):
        shape = [names[name].get(i, size) for i, size in enumerate(tensor.shape)]
        item: dict[str, Any] = {"name": name, "shape": shape, "dtype": _name_dtype(tensor)}
        if parameters[position] != name:
            item["at"] = f"kwargs.{name}"
        # Example floats are a case if the module accepts others, which reveal branches.
        given = {"file": f"inputs.safetensors:{name}"}
        if is_normal and tensor.is_floating_point():
            case["values"][name] = given
        else:
            item["fill"] = given
        items.append(item)
    save_file(values, folder / "inputs.safetensors")
    table: dict[str, Any] = {"inputs": items, "cases": [case] if case["values"] else []}
    if outputs is None:
        returned = [_call(module, values), _call(module, _resize(inputs, names, second))]
        table["outputs"] = _find_outputs(returned, {(first[a], second[a]): a for a in limits})
    else:
        table["outputs"] = [{"name": name, "shape": list(s)} for name, s in outputs.items()]
    table["axes"] = {name: {"example": first[name], **each} for name, each in limits.items()}
    _write_module(module, folder)
    return table


def _accepts_normal(module: torch.nn.Module, inputs: Mapping[str, torch.Tensor]) -> bool:
    """Return True if the module computes finite values from floats of the default fill."""
    with use_seed(0):
        drawn = {
            name: torch.randn_like(each) if each.is_floating_point() else each
            for name, each in inputs.items()
        }
    try:
        return all(bool(output.isfinite().all()) for output in _call(module, drawn))
    except (ArithmeticError, AssertionError, LookupError, RuntimeError, TypeError, ValueError):
        return False


def _name(dim: Any) -> str:
    """Return the name of a text or of a `torch.export.Dim`."""
    return dim if isinstance(dim, str) else str(dim.__name__)


def _read_limits(dim: Any) -> dict[str, int]:
    """Return the limits of a `torch.export.Dim`, which are numbers or infinite."""
    limits = {key: getattr(dim, key, None) for key in ("min", "max")}
    return {key: value for key, value in limits.items() if type(value) is int and value < 1 << 40}


def _choose_sizes(limits: Mapping[str, Mapping[str, int]]) -> tuple[dict[str, int], ...]:
    """Return the sizes of each axis in two calls; no two sizes are equal if the limits allow it."""
    primes = list(_PRIMES)
    calls: tuple[dict[str, int], ...] = ({}, {})
    for sizes in calls:
        for axis, limit in limits.items():
            low, high = limit.get("min", 1), limit.get("max", primes[-1])
            sizes[axis] = next((prime for prime in primes if low <= prime <= high), high)
            primes = [prime for prime in primes if prime != sizes[axis]]
    return calls


def _resize(
    inputs: Mapping[str, torch.Tensor],
    names: Mapping[str, Mapping[int, str]],
    sizes: Mapping[str, int],
) -> dict[str, torch.Tensor]:
    """Return the inputs with other sizes of their axes: values are cut, or repeated."""
    resized = {}
    for name, tensor in inputs.items():
        values = tensor.detach().cpu()
        for dimension, axis in names[name].items():
            rows = torch.arange(sizes[axis]) % max(values.shape[dimension], 1)
            values = values.index_select(dimension, rows)
        resized[name] = values.contiguous()
    return resized


def _call(module: torch.nn.Module, inputs: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
    """Return the tensors that a copy of the module returns, in the mode of an export."""
    with torch.no_grad():
        returned = copy.deepcopy(module).eval()(**inputs)
    register_output_classes(returned)
    return [leaf for leaf in tree_leaves(returned) if isinstance(leaf, torch.Tensor)]


def _find_outputs(
    calls: Sequence[Sequence[torch.Tensor]], axes: Mapping[tuple[int, int], str]
) -> list[dict[str, Any]]:
    """Return the outputs of two calls.

    A dimension with the sizes of an axis in both calls is that axis, one with equal sizes is fixed,
    and any other has a name of its own.
    """
    table = []
    for index, (first, second) in enumerate(zip(*calls, strict=True)):
        name = "output" if len(calls[0]) == 1 else f"output_{index}"
        shape: list[int | str] = []
        for dimension, sizes in enumerate(zip(first.shape, second.shape, strict=True)):
            other = sizes[0] if sizes[0] == sizes[1] else f"{name}_{dimension}"
            shape.append(axes.get(sizes, other))
        table.append({"name": name, "shape": shape, "dtype": _name_dtype(first)})
    return table


def _name_dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _write_module(module: torch.nn.Module, folder: Path) -> None:
    """Store the module and the function that loads it in another process.

    Raises:
        ValueError: A class cannot be imported there.
    """
    homes = {each.__module__: sys.modules[each.__module__] for each in map(type, module.modules())}
    files = {name: home.__file__ for name, home in homes.items() if hasattr(home, "__file__")}
    try:
        torch.save(module, folder / "module.pt")
    except Exception as error:
        name = type(module).__name__
        message = f"prove: {name} cannot be imported: {error}; define it at the top of a module"
        raise ValueError(message) from error
    path = [str(Path(name).absolute()) for name in sys.path]
    loader = _LOADER.format(path=path, modules=files)
    (folder / "module.py").write_text(loader, encoding="utf-8")
