"""The mutants of a file: as many as asked, of every kind, the same for the same seed.

In: a model, the folder of its file, a count and a seed. Out: `Mutant`s, each one change.

The mutators take turns, so that a file of many weights and few nodes is not changed in its weights
alone; one that finds no new place leaves the round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

import onnx
from onnx import ModelProto, TypeProto

from exporter.runtimes.graph_walk import iter_initializers
from exporter.tools.audit.child.mutators.attributes import ATTRIBUTES
from exporter.tools.audit.child.mutators.draft import Draft, Patch
from exporter.tools.audit.child.mutators.edges import EDGES
from exporter.tools.audit.child.mutators.interface import HEADERS, SHAPES
from exporter.tools.audit.child.mutators.operators import OPERATORS
from exporter.tools.audit.child.mutators.weights import WEIGHTS

Mutator = Callable[[Draft], str]
Types = Mapping[str, tuple[int, tuple[int | str, ...]]]

MUTATORS: tuple[tuple[str, Mutator], ...] = tuple(
    (kind, mutator)
    for kind, group in (
        ("weight", WEIGHTS),
        ("attribute", ATTRIBUTES),
        ("operator", (*OPERATORS, *OPERATORS)),  # two mutators: each has two turns
        ("edge", EDGES),
        ("shape", SHAPES),
        ("header", HEADERS),
    )
    for mutator in group
)
#: So often does a mutator draw a place anew before it is taken to have no more.
_TRIES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A model with one change."""

    kind: str
    change: str
    model: ModelProto
    patches: tuple[Patch, ...] = ()
    touched: tuple[str, ...] = ()
    """Names of the tensors that the patches change."""
    rows: tuple[int, ...] = ()
    """Indices along the first axis of a weight that were changed."""


def draw_mutants(model: ModelProto, folder: Path, count: int, seed: int) -> Iterator[Mutant]:
    """Draws up to `count` different mutants."""
    types = infer_types(model)
    turns = list(enumerate(MUTATORS))
    seen: set[str] = set()
    turn = 0
    while turns and len(seen) < count:
        remaining = []
        for place, (kind, mutator) in turns:
            if len(seen) == count:
                return
            rng = Random(f"{seed}/{place}/{turn}")  # noqa: S311 - draws mutants, keeps no secret
            mutant = _draw(kind, mutator, Draft(ModelProto(), folder, rng, types), model, seen)
            if mutant:
                remaining.append((place, (kind, mutator)))
                seen.add(mutant.change)
                yield mutant
        turns, turn = remaining, turn + 1


def _draw(
    kind: str, mutator: Mutator, draft: Draft, model: ModelProto, seen: set[str]
) -> Mutant | None:
    for _ in range(_TRIES):
        draft.model.CopyFrom(model)
        draft.patches.clear()
        draft.touched.clear()
        change = mutator(draft)
        if change and change not in seen:
            return Mutant(
                kind=kind,
                change=change,
                model=draft.model,
                patches=tuple(draft.patches),
                touched=tuple(draft.touched),
                rows=draft.rows,
            )
    return None


def infer_types(model: ModelProto) -> Types:
    """Element type and shape of each value of the main graph where both are known."""
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    found: dict[str, tuple[int, tuple[int | str, ...]]] = {}
    for value in (*inferred.input, *inferred.value_info, *inferred.output):
        if known := _type(value.type):
            found[value.name] = known
    for tensor in iter_initializers(model):
        found[tensor.name] = (tensor.data_type, tuple(tensor.dims))
    return found


def _type(value: TypeProto) -> tuple[int, tuple[int | str, ...]] | None:
    tensor = value.tensor_type
    if not value.HasField("tensor_type") or not tensor.HasField("shape"):
        return None
    dims = [
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param for dim in tensor.shape.dim
    ]
    return None if "" in dims else (tensor.elem_type, tuple(dims))
