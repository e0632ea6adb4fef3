"""PyTorch's results for the samples of each caller."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from exporter.core.import_object import load_attribute
from exporter.jobs import JobFolder
from exporter.manifest import Caller, ModelSpec
from exporter.records.record import Stage, Status
from exporter.worker.callers.results import Values, list_values, write_values
from exporter.worker.callers.samples import list_samples, write_samples
from exporter.worker.inputs.call import Tensors, to_numpy
from exporter.worker.model.model_kinds import Model
from exporter.worker.process.failure import Failure, wrap_errors
from exporter.worker.process.setup import apply_state, seed_generators
from exporter.worker.reference.eager_run import BufferSnapshot, list_named_leaves
from exporter.worker.reference.python_state import lend_model
from exporter.worker.torch_private import internals

#: In the folder of a caller: all samples.
SAMPLES = "samples.pickle"
#: With one sample, a caller that ignores it could have the right result.
_FEWEST = 2


def locate_references(folder: JobFolder, number: int) -> Path:
    """Return the folder of PyTorch's results for a caller, which only a job has."""
    return folder.temporary / "callers" / str(number)


def compute_reference(
    model: Model, spec: ModelSpec, _: Tensors, job_folder: JobFolder, root: Path
) -> tuple[str, ...]:
    """Write PyTorch's results for all samples of all callers, and the calls of the model.

    A file of `locate_references` has the result of one sample, then the inputs and the outputs of
    each call of the model.

    Returns:
        The first samples of all callers, each behind the name of its reference.

    Raises:
        Failure: Stage `source`, if a function fails or changes weights, if there are too few
            samples, or if a result changes in a second call.
    """
    names: list[str] = []
    for number, caller in enumerate(spec.callers):
        with wrap_errors(Stage.SOURCE):
            folder = (root / spec.manifest).parent
            function = load_attribute(caller.reference, folder)
            samples = list_samples(caller, folder)
            if len(samples) < _FEWEST:
                problem = f"{caller.samples} has {len(samples)} samples; name at least {_FEWEST}"
                raise ValueError(f"{problem}, since a caller can ignore a single one")
            references = locate_references(job_folder, number)
            write_samples(references / SAMPLES, samples)
            with lend_model(model, caller.reference):
                for index, sample in enumerate(sample for _, sample in samples):
                    tables = _run(model, spec, function, sample)
                    if not index:
                        again = _run(model, spec, function, sample)[0]
                        _require_equal(caller, tables[0], again)
                    write_values(references / f"{index}.npz", tables)
        names.append(f"{caller.reference}: {samples[0][0]}")
    return tuple(names)


def _run(
    model: Model, spec: ModelSpec, function: Callable[..., object], sample: object
) -> list[Values]:
    """Return the result, then the inputs and the outputs of each call of the model.

    A program that calls the model again with the same inputs would call a file once.
    """
    calls: list[Values] = []
    seed_generators(spec.seed)
    with BufferSnapshot(model), apply_state(spec), _record_calls(model, spec, calls):
        result = function(model, copy.deepcopy(sample))  # it may write into the sample
    pairs = list(zip(calls[::2], calls[1::2], strict=True))
    distinct = [
        pair
        for index, pair in enumerate(pairs)
        if not any(_are_equal(pair[0], other) for other, _ in pairs[:index])
    ]
    if not calls:
        raise TypeError("the reference of a caller does not call the model that it receives")
    values = list_values(result)
    if not values:
        raise TypeError("the reference of a caller returns nothing")
    return [values, *(table for pair in distinct for table in pair)]


@contextmanager
def _record_calls(model: Model, spec: ModelSpec, calls: list[Values]) -> Iterator[None]:
    """Record the tensors of each call by their names in the contract, if their number fits."""

    def record(_: Model, args: tuple[Any, ...], kwargs: dict[str, Any], returned: object) -> None:
        named = {each.name: kwargs[each.name] for each in spec.inputs if each.name in kwargs}
        others = {key: value for key, value in kwargs.items() if key not in named}
        leaves = internals.tree_leaves((args, others))
        tensors = [each for each in leaves if isinstance(each, torch.Tensor)]
        names = [each.name for each in spec.inputs if each.name not in named]
        inputs = {**named, **dict(zip(names, tensors, strict=False))}
        outputs = [leaf for _, leaf in list_named_leaves(returned, spec)]
        pairs = zip((each.name for each in spec.outputs), outputs, strict=False)
        for values in (inputs.items(), pairs):
            arrays = ((n, to_numpy(v)) for n, v in values if isinstance(v, torch.Tensor))
            calls.append({name: np.array(array) for name, array in arrays})

    hook = model.register_forward_hook(record, with_kwargs=True)
    try:
        yield
    finally:
        hook.remove()


def _require_equal(caller: Caller, first: Values, second: Values) -> None:
    if not _are_equal(first, second):
        problem = "returns another result in a second call; make it repeatable, with a seed"
        raise Failure(Stage.SOURCE, f"{caller.reference}: {problem}", status=Status.FAIL)


def _are_equal(first: Values, second: Values) -> bool:
    return first.keys() == second.keys() and all(
        np.array_equal(array, second[name], equal_nan=array.dtype.kind in "fc")
        for name, array in first.items()
    )
