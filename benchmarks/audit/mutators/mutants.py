"""The mutants of a file: the requested number, of every kind, equal for equal seeds.

Each round uses every mutator once, because a file may have many weights and few nodes. A mutator
that finds no new place is removed from the rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

import onnx
from onnx import ModelProto, TypeProto

from benchmarks.audit.mutators.attributes import ATTRIBUTES
from benchmarks.audit.mutators.conditions import CONDITIONS
from benchmarks.audit.mutators.draft import Draft, Patch
from benchmarks.audit.mutators.edges import EDGES
from benchmarks.audit.mutators.interface import HEADERS, SHAPES
from benchmarks.audit.mutators.operators import OPERATORS
from benchmarks.audit.mutators.weights import WEIGHTS
from exporter.runtimes.graph_walk import iter_initializers

Mutator = Callable[[Draft], str]
Types = Mapping[str, tuple[int, tuple[int | str, ...]]]

MUTATORS: tuple[tuple[str, Mutator], ...] = tuple(
    (kind, mutator)
    for kind, group in (
        ("weight", WEIGHTS),
        ("attribute", ATTRIBUTES),
        ("operator", (*OPERATORS, *OPERATORS)),  # only two mutators, so each is used twice
        ("edge", EDGES),
        ("shape", SHAPES),
        ("header", HEADERS),
        ("condition", CONDITIONS),
    )
    for mutator in group
)
#: Draws of a mutator before it counts as exhausted.
_MAX_DRAWS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A model with one change."""

    kind: str
    change: str
    model: ModelProto
    patches: tuple[Patch, ...] = ()
    touched: tuple[str, ...] = ()
    """Names of the tensors in patches."""
    rows: tuple[int, ...] = ()
    """Changed indices along the first axis of a weight, or the integer that shows the change."""
    sizes: tuple[Mapping[str, int], ...] = ()
    """Sizes of axes that show the change."""
    numbers: tuple[float, ...] = ()
    """Values of floating inputs that show the change."""


def draw_mutants(model: ModelProto, folder: Path, count: int, seed: int) -> Iterator[Mutant]:
    """Yield up to `count` different mutants."""
    types = infer_types(model)
    active = list(enumerate(MUTATORS))
    seen: set[str] = set()
    number = 0
    while active and len(seen) < count:
        remaining = []
        for position, (kind, mutator) in active:
            if len(seen) == count:
                return
            rng = Random(f"{seed}/{position}/{number}")  # noqa: S311 - draws mutants, no secret
            mutant = _draw_mutant(
                kind, mutator, Draft(ModelProto(), folder, rng, types), model, seen
            )
            if mutant:
                remaining.append((position, (kind, mutator)))
                seen.add(mutant.change)
                yield mutant
        active, number = remaining, number + 1


def _draw_mutant(
    kind: str, mutator: Mutator, draft: Draft, model: ModelProto, seen: set[str]
) -> Mutant | None:
    for _ in range(_MAX_DRAWS):
        draft.model.CopyFrom(model)
        draft.patches.clear()
        draft.touched.clear()
        draft.sizes.clear()
        draft.numbers = ()
        change = mutator(draft)
        if change and change not in seen:
            return Mutant(
                kind=kind,
                change=change,
                model=draft.model,
                patches=tuple(draft.patches),
                touched=tuple(draft.touched),
                rows=draft.rows,
                sizes=tuple(draft.sizes),
                numbers=draft.numbers,
            )
    return None


def infer_types(model: ModelProto) -> Types:
    """Return element type and shape of each value of the main graph, if both are value_type."""
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    types: dict[str, tuple[int, tuple[int | str, ...]]] = {}
    for value in (*inferred.input, *inferred.value_info, *inferred.output):
        if value_type := _read_type(value.type):
            types[value.name] = value_type
    for tensor in iter_initializers(model):
        types[tensor.name] = (tensor.data_type, tuple(tensor.dims))
    return types


def _read_type(value: TypeProto) -> tuple[int, tuple[int | str, ...]] | None:
    tensor = value.tensor_type
    if not value.HasField("tensor_type") or not tensor.HasField("shape"):
        return None
    dims = [
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param for dim in tensor.shape.dim
    ]
    return None if "" in dims else (tensor.elem_type, tuple(dims))
